#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What surrounds a launch is not as it should be: a full disk or nobody behind its output, standard
# descriptors that are closed, few open files allowed; numbers that are too large; an agent that
# does not end.
. "$(dirname "$0")/lib.sh"

# An agent of fixed ranks that does not end when they have: it has a deadline, and the job ends
# well. That takes a while, so it goes on beside the rest.
printf '#!/bin/sh\nshift\n"$@"\nexec sleep 1000\n' >stays
chmod +x stays
stays() {
    limited "$tandem" launch -n 2 --hosts localhost:1,b:1 --listen 127.0.0.1 --ssh "$dir/stays" \
        --grace 100ms -- sh -c 'echo "rank $RANK ends"' >stays.out 2>&1
    echo $? >stays.status
}
stays &
prog=$build/tests/prog_members
cat >"$mark" <<'JOB'
name: spirals
model: [{linear: 8, act: relu}, linear]
loss: cross_entropy
data: {source: spirals, count: 100}
train: {batch: 20, steps: 400, eval: {every: never}}
checkpoint: {every: end}
log: {every: 1}
JOB
finished() { # RUN: all steps are in its metrics, which hold nothing else, and in a checkpoint
    [ "$(cat "$1/checkpoints/latest")" = step-00000400 ] || fail "$1 is not finished"
    python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [l["step"] for l in lines if l["kind"] == "step"] == list(range(1, 401))
' "$1/metrics.jsonl" || fail "metrics.jsonl of $1"
}

# A full disk, or nobody, behind the output of a run with several ranks: it goes on, as with one.
for ranks in "-n 2" "-n 2 --elastic --lease 10s"; do
    # shellcheck disable=SC2086
    limited "$tandem" train "$mark" $ranks --run-dir full --json >/dev/full 2>out &&
        fail "$ranks: a full disk is good"
    has 'cannot write the output.*No space left'
    finished full
    # shellcheck disable=SC2086
    limited "$tandem" train "$mark" $ranks --run-dir pipe --json 2>out | head -n 1 >/dev/null
    [ "${PIPESTATUS[0]}" = 0 ] || fail "$ranks: nobody reads: status ${PIPESTATUS[0]}"
    finished pipe
    rm -rf full pipe
done

# Closed descriptors: files of the run do not take their place.
for ranks in "-n 1" "-n 2"; do
    # shellcheck disable=SC2086
    limited "$tandem" train "$mark" $ranks --run-dir closed <&- >&- 2>&- ||
        fail "$ranks: closed descriptors: status $?"
    finished closed
    rm -rf closed
done

# Few open files: elastic ranks need some, but not one for each place that there could be.
(ulimit -n 100 && run 0 "$tandem" launch -n 2 --elastic --lease 10s -- "$prog" steps 5 1) || exit 1

# Times and numbers that do not fit are refused, in whichever unit they are given.
for time in 4294967.4 4294967400ms 1e300 2000001s 0.1ms -1 nan inf 5m; do
    run 2 "$tandem" launch -n 2 --elastic --hang $time -- true
    has 'hang: expected a time such as 240s, up to 2000000s'
    run 2 "$tandem" launch -n 2 --grace $time -- true
    run 2 "$tandem" launch -n 2 --elastic --lease $time -- true
done
run 0 "$tandem" launch -n 2 --elastic --lease 10s --hang 2000000s -- "$prog" steps 2 1
run 2 "$tandem" launch -n 300 --elastic -- "$prog"
has '300 elastic ranks and 0 spares: a host runs at most 256 processes'
run 2 "$tandem" train "$source/examples/digits.yaml" -n 2:300 --run-dir none
has '300 elastic ranks and 0 spares: a host runs at most 256 processes'
[ ! -e none ] || fail "a job that cannot start has made its directory"
run 2 "$tandem" launch -n 2:4 --hosts localhost:300 -- "$prog"
has 'host localhost: 300 slots and 0 spares, but a host runs at most 256 elastic processes'

# Programs that do not take part have a world of their own, and are told so; fixed ranks are not.
run 0 "$tandem" launch -n 1:2 -- /bin/true
has '/bin/true does not join as tandem train does'
[ "$(grep -c 'a new world' out)" = 1 ] || fail "more than a line"
run 0 "$tandem" launch -n 2 -- /bin/true
! grep -q 'a new world' out || fail "a line about fixed ranks"

# A job that fails again and again tells of what does, not of what came before.
cat >once.sh <<'SH'
if mkdir "$1" 2>/dev/null; then kill -9 $$; fi
exec "$2" crash
SH
run 7 "$tandem" launch -n 1 --elastic --restarts 2 --lease 10s -- sh once.sh "$dir/killed" "$prog"
tail -n 1 out | grep -q 'without a step forward; the last: .*exit status 7: the disk is made of' ||
    fail "the cause is not what happens again and again"
none_left "a launch"

soon [ -s stays.status ] || fail "an agent that stays holds the job up"
[ "$(cat stays.status)" = 0 ] && [ "$(grep -c 'rank [01] ends' stays.out)" = 2 ] ||
    fail "an agent that stays: status $(cat stays.status): $(cat stays.out)"
echo "test_launch_faults: good"
