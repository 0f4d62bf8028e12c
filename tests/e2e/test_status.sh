#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tandem status and the hang report: a live elastic job, a plain one, one that is done, interrupted,
# failed, killed or not there; a rank that is stopped, dead, or stuck in its data.
set -uo pipefail
tandem=$(realpath "${TD_BUILD:-build}/tandem")
dir=$(mktemp -d)
mark=$dir/job.yaml # an argument by which processes of this test are found
pids=()
end_all() { for p in $(pgrep -f "$mark"); do kill -KILL "$p" 2>/dev/null; done; }
trap 'kill "${pids[@]}" 2>/dev/null; end_all; rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() { echo "test_status: $*" >&2; cat out err 2>/dev/null >&2; exit 1; }
# wait_for SECONDS COMMAND...: until it succeeds
wait_for() {
    local end=$((SECONDS + $1)); shift
    until "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.05; done
}
# state EXPECTED_STATUS ARGS...: tandem status, its output in ./out, in time
state() {
    local want=$1 got; shift
    timeout 20 "$tandem" status "$@" >out 2>err; got=$?
    [ "$got" = "$want" ] || fail "status $* gave $got instead of $want"
}
has() { grep -q -- "$1" out || fail "no '$1' in the output"; }
lines() { [ "$(cat out err | wc -l)" = "$1" ] || fail "not $1 lines"; }
says() { grep -q -- "$1" job.err; }
json() { state "$1" "$2" --json && python3 -c "import json, sys
s = json.load(open('out'))
sys.exit(0 if $3 else 1)" || fail "not so: $3"; }
# start ARGS...: in the background, output in ./job.out and ./job.err
start() {
    rm -rf run
    "$tandem" train "$mark" --run-dir run -q "$@" >job.out 2>job.err &
    pid=$!
    pids+=($pid)
}
busy() { "$tandem" status run --json 2>/dev/null | grep -q '"step":[1-9]'; }

cat >"$mark" <<'JOB'
name: tiny
model: [flatten, {linear: 16, act: relu}, linear]
data: {source: digits, count: 200}
train: {batch: 32, steps: 1000000, eval: {every: never}}
checkpoint: {every: 20}
log: {tensorboard: false, report: false}
JOB

# Nothing there: one line, status 1.
state 1; lines 1
state 1 nowhere; lines 1; grep -q "no such run" err || fail "nowhere"
mkdir empty
state 1 empty; lines 1

# A live elastic job.
start -n 2:3 --spares 1
wait_for 20 busy || fail "no step"
members() {
    "$tandem" status run | grep -q "generation 1, 3 ranks" && "$tandem" status run | grep -q spare
}
wait_for 10 members || fail "not three ranks and a spare"
state 0 run
has "running since"; has "3 wanted, 2 at least"; has "samples/s"; has "left"
json 0 run "s['state'] == 'running' and s['steps'] == 1000000 and s['job']['ranks'] == 3"
json 0 run "sorted(p['rank'] for p in s['job']['hosts'][0]['says']['processes']) == [-1, 0, 1, 2]"
json 0 run "all(p['beat'] < 5 for p in s['job']['hosts'][0]['says']['processes'])"

# A rank is killed, another stopped: both are in the hang report, with what was done.
of() { "$tandem" status run --json | python3 -c "import json, sys
processes = json.load(sys.stdin)['job']['hosts'][0]['says']['processes']
print([p['pid'] for p in processes if p['rank'] == $1][0])"; }
victim=$(of 1)
kill -KILL "$victim"
wait_for 10 says "hang: rank 1 on host localhost, pid $victim: dead.*signal 9.*takes its place" ||
    fail "dead"
later() { json 0 run "s['job']['failures'] >= $1 and s['job']['generation'] > $1"; }
full() { "$tandem" status run | grep -q ", 3 ranks (3 wanted"; }
wait_for 10 full || fail "not three ranks again"
later 1
victim=$(of 2)
kill -STOP "$victim"
stopped="hang: rank [0-9] on host localhost, pid $victim: stopped.*step [0-9]*"
wait_for 10 says "$stopped, silent since.*killed" || fail "stopped"
wait_for 10 full || fail "not three ranks once more"
json 0 run "s['job']['failures'] == 2 and any('stopped' in e['text'] for e in s['job']['events'])"

# --watch ends with the job; an interrupted run says so, with status 1.
timeout 30 "$tandem" status run --watch >watched &
watcher=$!
pids+=($watcher)
sleep 0.1
kill -INT $pid
wait $pid
wait $watcher || fail "watch gave $?"
grep -q "interrupted after step" watched || fail "watch did not see the end"
state 1 run; lines 1
has "interrupted after step"

# A job whose launcher is killed: known at once, though its control file is still there.
start -n 2 --elastic
saved() { "$tandem" status run --json 2>/dev/null | grep -q '"checkpoint_step":[1-9]'; }
wait_for 20 saved || fail "no checkpoint"
kill -KILL $pid
wait $pid 2>/dev/null
gone() { ! pgrep -f "$mark" >/dev/null; }
wait_for 10 gone || fail "processes are left"
state 1 run; lines 1
has "ended without a word"
has "resume=run"

# A plain run; one line for a rank that is stopped there.
start -n 2
wait_for 20 busy || fail "no step"
state 0 run
has "compute  network"
kill -STOP "$(pgrep -f -- "train.*$mark" | tail -n 1)"
wait_for 15 says "stall: .*step [0-9]*.* waits since .* for rank [01] on host .*: stopped" ||
    fail "no stall report"
[ "$(grep -c 'stall: .*waits since 3' job.err)" = 1 ] ||
    fail "more than one line for one stuck rank"
end_all
wait $pid 2>/dev/null

# Done, and failed.
sed -i 's/1000000/20/' "$mark"
start
wait $pid || fail "the run failed"
state 1 run; lines 1
has "done after step 20"; has "digest sha256"
json 1 run "s['state'] == 'done' and s['digest'].startswith('sha256')"
echo "test_status: ok"
