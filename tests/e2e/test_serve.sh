#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tandem serve as a user starts and stops it: bad configurations, one service per directory, a job
# that goes on when its service is told to leave or is killed, the book's properties file.
. "$(dirname "$0")/lib.sh"
"$tandem" help serve >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }

# refused TEXT FLAG...: status 2 and one line that says so
refused() {
    local text=$1
    shift
    timeout 20 "$tandem" serve "$@" >out 2>&1
    [ $? = 2 ] && [ "$(wc -l <out)" = 1 ] && grep -qF "$text" out || fail "expected: $text"
}
local_only=(--set grpc.listen=127.0.0.1:0 --set http.listen=127.0.0.1:0)
echo 'grpc: {lisen: x}' >bad.yaml
refused 'bad.yaml:1:8: grpc.lisen: unknown key; did you mean grpc.listen?' -c bad.yaml
refused 'missing.yaml' -c missing.yaml
refused "there is no tracker 'moon'" --set tracker=moon "${local_only[@]}"
refused 'expected HOST:PORT, found 127.0.0.1:99999' --set grpc.listen=127.0.0.1:99999
refused 'can be reached from other machines' --set grpc.listen=0.0.0.0:0
refused 'give cert and key' --set security.tls.cert=x

# start NAME FLAG...: the service's process in $pid, its address in $server
start() {
    local name=$1
    shift
    "$tandem" serve "${local_only[@]}" --set data.dir="$dir/data" "$@" >"$name" 2>&1 &
    pid=$!
    soon grep -q '^data' "$name" || { cp "$name" out; fail "$name: it does not start"; }
    server=$(sed -n 's/^HTTP  //p' "$name")
}
start first
# It has what it needs: neither the web server nor TLS, S3 or oneDNN before somebody asks for them.
loaded() {
    grep -oE '/lib(microhttpd|gnutls|crypto|ssl|curl|dnnl|gomp)[.-]' "/proc/$pid/maps" | sort -u
}
built_lazy() { grep -q microhttpd "$build/tandem.libraries"; } # not with sanitizers
! built_lazy || [ -z "$(loaded)" ] || { loaded >out; fail "libraries that nobody needs"; }
alone() { [ "$(ls "/proc/$pid/task" | wc -l)" = 1 ]; } # threads that start it have ended
! built_lazy || soon alone || fail "threads that nobody needs"
timeout 20 "$tandem" serve "${local_only[@]}" --set data.dir="$dir/data" >out 2>&1
[ $? = 2 ] && grep -q 'is in use by another service' out || fail "two services in one directory"

# The job's command names $mark, so that lib.sh ends it if this script fails.
program="echo begin; touch here; until test -e go; do sleep 0.02; done; echo end # $mark"
"$tandem" submit -s "$server" --name long -- sh -c "$program" >out 2>&1 || fail "submit"
work=$dir/data/jobs/1/work
soon test -e "$work/here" || fail "the job does not start"
kill -TERM "$pid"
wait "$pid" || fail "SIGTERM: status $?"
[ -n "$(processes)" ] || fail "the job ended with its service"

start second
"$tandem" jobs -s "$server" >out 2>&1 || fail "jobs"
grep -q 'running' out || fail "the job was not adopted"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
[ -n "$(processes)" ] || fail "the job ended with its killed service"
touch "$work/go"
soon test -e "$(echo "$dir"/data/jobs/1/attempts/*)/status" || fail "its supervisor records no end"

start third
succeeded() { "$tandem" jobs -s "$server" --all >out 2>&1 && grep -q succeeded out; }
soon succeeded || fail "the end was not seen"
"$tandem" logs -s "$server" 1 >out 2>&1 || fail "logs"
[ "$(cat out)" = "$(printf 'begin\nend')" ] || fail "the log of two services' times"
kill -INT "$pid"
wait "$pid" || fail "SIGINT: status $?"

export APP_CONFIG=$dir/book.properties
printf 'minio.accessKey=%01100d\n' 0 >book.properties
refused 'book.properties: a line has 1116 bytes, more than 1023'
printf 'ts.backend=moon\n' >book.properties
refused 'ts.backend: expected docker or kubectl, found moon'
printf 'ts.server.port=\\0\nts.backend=docker\nts.backend.dockerNetwork=orca3\n' >book.properties
timeout 20 "$tandem" serve --set http.listen=127.0.0.1:0 >out 2>&1 &
pid=$!
soon grep -q '^gRPC  0.0.0.0:' out || fail "the book's properties"
kill -TERM "$pid"
wait "$pid" || fail "SIGTERM with the book's properties"
