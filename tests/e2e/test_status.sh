#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# tandem status and the hang report: a live elastic job, a plain one, one that is done, interrupted,
# failed, killed or not there; a rank that is stopped, dead, or stuck in its data.
. "$(dirname "$0")/lib.sh"

# state EXPECTED_STATUS ARGS...: tandem status
state() { run "$1" "$tandem" status "${@:2}"; }
lines() { [ "$(wc -l <out)" = "$1" ] || fail "not $1 lines"; }
says() { grep -q -- "$1" job.err; }
# is ARGS...: some line of the status of ./run is like that now
is() { "$tandem" status run >now 2>&1; grep -q -- "$@" now; }
# json EXPRESSION: so it is now, with the status of ./run in s and its processes in p
json() {
    "$tandem" status run --json >now 2>&1
    python3 -c "import json, sys
s = json.load(open('now'))
p = s['job']['hosts'][0]['says']['processes'] if 'job' in s else []
sys.exit(0 if $1 else 1)" 2>/dev/null
}
# must COMMAND...: so it will be
must() { soon "$@" || { cat now job.err >&2; fail "not so: $*"; }; }
# start ARGS...: in the background, output in ./job.out and ./job.err
start() {
    rm -rf run
    "$tandem" train "$mark" --run-dir run -q "$@" >job.out 2>job.err &
    pid=$!
}

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
state 1 nowhere; lines 1; has "no such run"
mkdir empty
state 1 empty; lines 1

# A live elastic job. Who is told of a generation is told who is in it.
start -n 2:3 --spares 1 --lease 4s
must is "now 3 ranks (generation 1)"
ranks="sorted(q['rank'] for q in p if q['rank'] >= 0) == [0, 1, 2]"
json "$ranks" || fail "a generation without its ranks"
must json "len(p) == 4 and [q['state'] for q in p if q['rank'] < 0] == ['waiting']"
must is "samples/s.*left"
state 0 run
has "running for"; has "3 wanted, 2 at least"; has "spare"
must json "s['state'] == 'running' and s['steps'] == 1000000 and s['job']['ranks'] == 3"
must json "all(q['beat'] < 5 for q in p)"

# It fits a terminal, which shows colours unless it is not to.
narrow() { "$tandem" status run | awk 'length > 80 { bad = 1 } END { exit bad }'; }
narrow || fail "wider than 80: $("$tandem" status run)"
green=$'\033[32mrunning'
"$terminal" 80 seen "$tandem" status run </dev/null
grep -qF "$green" seen || fail "no colour: $(cat seen)"
NO_COLOR=1 "$terminal" 80 seen "$tandem" status run </dev/null
! grep -qF "$green" seen || fail "colour, although it is not wanted: $(cat seen)"
! "$tandem" status run | grep -q $'\033' || fail "colour in a pipe"

# A rank is killed, another stopped: both are in the hang report, with what was done.
of() { soon json "[print(q['pid']) for q in p if q['rank'] == $1]"; }
victim=$(of 1)
kill -KILL "$victim"
must says "rank 1 (host localhost, pid $victim) was killed by signal 9.*; continuing with 2 "\
'ranks, starting a replacement'
must json "s['job']['failures'] == 1 and s['job']['generation'] > 1 and $ranks"
victim=$(of 2)
kill -STOP "$victim"
must says "rank [0-9] (host localhost, pid $victim) was silent .* killed: stopped.*at step"
must json "s['job']['failures'] == 2 and any('stopped' in e['text'] for e in s['job']['events'])"
must json "s['job']['generation'] > 2 and $ranks"

# --watch ends with the job; an interrupted run says so, with status 1.
limited "$tandem" status run --watch >watched &
watcher=$!
must grep -q "running for" watched
kill -INT $pid
wait $pid
wait $watcher || fail "watch gave $?"
grep -q "interrupted after step" watched || fail "watch did not see the end"
state 1 run; lines 1
has "interrupted after step"

# A job whose launcher is killed: known at once, though its control file is still there.
start -n 2 --elastic
saved() { "$tandem" status run --json 2>/dev/null | grep -q '"checkpoint_step":[1-9]'; }
must saved
kill -KILL $pid
wait $pid 2>/dev/null
gone() { ! "$tandem" status run >now 2>&1; }
must gone
state 1 run; lines 1
has "ended without a message"
has "resume=run"
sed -i '2,$d' run/metrics.jsonl # as if it had never come to a step
state 1 run; lines 1
has "it was probably killed before its first step of [0-9]"

# Fixed ranks tell the same; another number of them is refused. One line for a rank that is stopped.
start -n 2
must is "now 2 ranks (generation 1); fixed, 0 of 0 restarts"
must json "[q['rank'] for q in p] == [0, 1] and all(q['step'] > 0 for q in p)"
must is "samples/s.*left"
run 2 "$tandem" scale run 3; has "this job has 2 ranks from its start to its end"
kill -STOP "$(pgrep -P "$(pgrep -P $pid)" | head -n 1)"
must says "stall: .*step [0-9]*.* has waited .* for rank [01] (host .*): stopped"
must is "stalled: stopped"
must is "stalled: has waited for other ranks for"
[ -z "$(grep -o 'stall: .*has waited [0-9]*' job.err | sort | uniq -d)" ] ||
    fail "more than one line for one stuck rank"
end_all
wait $pid 2>/dev/null
must dead

# Done, and failed.
sed -i 's/1000000/20/' "$mark"
start
wait $pid || fail "the run failed"
state 1 run; lines 1
has "done after step 20"; has "digest sha256"
json "s['state'] == 'done' and s['digest'].startswith('sha256')" || fail "not done"
echo "test_status: ok"
