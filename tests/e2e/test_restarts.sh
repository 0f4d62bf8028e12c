#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --restarts of fixed ranks: after a failure all ranks are started again, as another generation. A
# training run continues from its newest checkpoint and ends with the digest of one that was never
# interrupted; other programs are counted as torchrun counts them.
. "$(dirname "$0")/lib.sh"
cat >"$mark" <<'JOB'
name: spirals
model: [{linear: 8, act: relu}, linear]
loss: cross_entropy
data: {source: spirals, count: 100}
train: {batch: 20, steps: 60, eval: {every: never}}
checkpoint: {every: 7}
log: {tensorboard: false, report: false}
JOB
run 0 "$tandem" train "$mark" --run-dir whole
want=$(digest)

# Rank 1 is killed at step 30 of the first generation.
cat >rank.sh <<'SH'
faults=
[ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || faults='--faults=kill rank=1 at=step:30'
exec "$1" train "$2" --run-dir again ${faults:+"$faults"}
SH
run 0 "$tandem" launch -n 2 --restarts 1 -- sh rank.sh "$tandem" "$mark"
has 'rank 1 of 2 on host localhost; all ranks are started again (restart 1 of 1)'
has 'resumed in again'
same "after a restart"
python3 -c '
import json
steps = [l["step"] for l in map(json.loads, open("again/metrics.jsonl")) if l["kind"] == "step"]
assert steps == list(range(1, 61)), steps' || fail "the steps of the run are not there once each"
rm -rf again
run 137 "$tandem" launch -n 2 -- sh rank.sh "$tandem" "$mark" # none without --restarts

# A rank that is stopped says nothing: with a lease it is killed, and the run goes on.
rm -rf again
sed -i 's/kill rank=1/stop rank=1/' rank.sh
run 0 "$tandem" launch -n 2 --restarts 1 --lease 600ms -- sh rank.sh "$tandem" "$mark"
has 'was silent for more than 600 ms and was killed: .*rank 1 of 2 on host localhost; all ranks'
same "after a rank that was stopped"
rm -rf again
run 137 "$tandem" launch -n 2 --hang 600ms -- sh rank.sh "$tandem" "$mark"
tail -n 1 out | grep -q 'and was killed: .*rank 1 of 2 on host localhost' || fail "no reason"
run 2 "$tandem" train "$mark" -n 2 --lease 100ms
has 'a lease of 100 ms is too short for a heartbeat every 200 ms'
run 2 "$tandem" train "$mark" -n 2 --hang 100ms
has 'a lease of 100 ms is too short for a heartbeat every 200 ms; give a longer --hang'

# Ranks that have ended their run do not hang, however long the rest of their work takes.
rm -f ended
run 0 "$tandem" train "$mark" -q -n 2 --hang 2s --run-dir ended.run \
    --set 'on.end=sleep 5; touch ended'
same "with a command at its end"
[ -e ended ] || fail "the command at the end of the run did not end"

# A program that fails each time: the last failure is the launcher's.
run 9 "$tandem" launch -n 2 --restarts 2 -- sh -c 'exit $((7 + TORCHELASTIC_RESTART_COUNT))'
has 'failed with exit status 8: rank [01] of 2 on host localhost; all .*(restart 2 of 2)'
tail -n 1 out | grep -q 'failed with exit status 9: rank' || fail "the last line is not the cause"

# Not after bad usage, nor when the job was asked to stop.
run 2 "$tandem" train "$mark" -n 2 --restarts 3 --set train.batch=x
hasnt() { ! grep -q -- "$1" out || fail "found: $1"; }
hasnt 'started again'
run 2 "$tandem" launch -n 2 --restarts 3 -- sh -c 'exit 2'
hasnt 'started again'
"$tandem" launch -n 2 --restarts 3 -- sh -c 'touch "up$RANK"; exec sleep 1000' >out 2>&1 &
pid=$!
up() { [ -e up0 ] && [ -e up1 ]; }
soon up || fail "the ranks do not begin"
kill -INT $pid
wait $pid
[ $? = 130 ] || fail "interrupted: not status 130"
hasnt 'started again'
none_left "a launch"
echo "test_restarts: ok"
