# SPDX-License-Identifier: Apache-2.0
# For tests of a `tandem serve` and its jobs; sourced after lib.sh or real.sh. `config`: its file.
# shellcheck shell=bash disable=SC2034,SC2154 # variables are the script's
"$tandem" help serve >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }

pid=
service_gone() { [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; }
declare -F background >/dev/null || also_clean() { service_gone; } # with real.sh: in release

# serve NAME FLAG...: the service's process in $pid, its address in $server, its output in NAME
serve() {
    local output=$1
    shift
    "$tandem" serve -c "$config" --set grpc.listen=127.0.0.1:0 --set data.dir="$dir/data" \
        --set http.listen="127.0.0.1:${http_port:-0}" "$@" >"$output" 2>&1 &
    pid=$!
    soon grep -qs '^data' "$output" || { cp "$output" out; fail "$output: it does not start"; }
    server=$(sed -n 's/^HTTP  \(.*\)\/$/\1/p' "$output")
}
# kill -9, as a crash
crash() {
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
}
end_service() {
    kill -TERM "$pid"
    wait "$pid" || fail "SIGTERM: status $?"
}
# submit FILE WORD...: the number of the job in $job
submit() {
    "$tandem" submit -s "$server" "$@" >out 2>&1 || fail "submit $*"
    job=$(grep -oE '[0-9]+' out | head -1)
}
auth=() # of curl's requests
ask() { curl -sS --max-time 60 "${auth[@]}" "$@"; }
# number KEY JOB: of what /v1/jobs/JOB says; state JOB
number() {
    ask "$server/v1/jobs/$2" | grep -oE "\"$1\": ?[0-9]+" | grep -oE '[0-9]+$' | head -1
}
state() { ask "$server/v1/jobs/$1" | grep -oE '"state": ?"[a-z]+"' | head -1 | cut -d'"' -f4; }
in_state() { [ "$(state "$1")" = "$2" ]; }
# await JOB STATE
await() {
    local now end=$((SECONDS + patience))
    until now=$(state "$1") && [ "$now" = "$2" ]; do
        case $now in
        succeeded | failed | cancelled) break ;;
        esac
        [ "$SECONDS" -lt "$end" ] || break
        sleep 0.05
    done
    [ "$now" = "$2" ] || {
        ask "$server/v1/jobs/$1" "$server/v1/jobs/$1/logs" >out
        cat "$config" >>out
        fail "job $1 is $now, not $2"
    }
}
# the sha256 of the job's weights, as its output says it; of attempt $2
digest() {
    ask "$server/v1/jobs/$1/logs?attempt=$2" | grep -o 'digest sha256:[0-9a-f]*'
}
metrics() { ask "$server/v1/jobs/$1/metrics"; }
has_steps() { metrics "$1" | grep '"kind": *"step"' >/dev/null; }
artifacts() { ask "$server/v1/jobs/$1/artifacts" | grep -o '"name":"[^"]*"'; }
