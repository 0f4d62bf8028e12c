#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Backup workers as a user sees them: a rank that stands still holds nobody up, what it does later
# is dropped and reported, a run is replayed from its metrics with the same digest; a killed rank.
set -uo pipefail
tandem=$(realpath "${TD_BUILD:-build}/tandem")
dir=$(mktemp -d)
mark=$dir/job.yaml # an argument by which processes of this test are found
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() { echo "test_backup: $*" >&2; [ -f out ] && cat out >&2; exit 1; }
# wait_for SECONDS COMMAND...: until it succeeds
wait_for() {
    local end=$((SECONDS + $1)); shift
    until "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.02; done
}
dead() { ! pgrep -f "$mark" >/dev/null; }
run() {
    local want=$1 got; shift
    timeout 100 "$@" >out 2>&1; got=$?
    [ "$got" = "$want" ] || fail "$* gave $got instead of $want"
}
has() { grep -q -- "$1" out || fail "no '$1' in the output"; }
digest() { grep -o 'sha256:[0-9a-f]*' out | tail -n 1; }
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"kind": *"step"'; }
past() { [ "$(steps "$1")" -ge "$2" ]; }
# pid_of RANK
pid_of() {
    pgrep -f "train .*-- $mark" | while read -r p; do
        grep -qz "^TANDEM_RANK=$1\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done
}

cat >"$mark" <<'JOB'
name: net
model: [{conv2d: 4, kernel: 3, stride: 2}, batch_norm, relu, flatten, {dropout: 0.2}, linear]
data: {source: digits, count: 300}
train: {batch: 48, epochs: 3, shards: 12, optimizer: {name: adamw, lr: 0.01}, clip: 1}
parallel: {backup: 1, threads: 1}
JOB

# A run, and its replays.
for transport in shm tcp; do
    run 0 "$tandem" train "$mark" -n 3 --run-dir=$transport --set parallel.transport=$transport
    has '^  dropped  '
    want=$(digest)
    grep -q 'late and dropped' $transport/report.html || fail "$transport: nothing in the report"
    python3 - $transport <<'PY' || fail "metrics.jsonl"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
steps = [e for e in events if e["kind"] == "step"]
assert all(len(e["counted"]) == 2 and e["counted"][0] == 0 for e in steps), steps[0]
end = [e for e in events if e["kind"] == "end"][-1]
assert len(end["dropped"]) == 3 and sum(end["dropped"]) <= len(steps), end
assert any(e["kind"] == "eval" for e in events)
PY
    run 0 "$tandem" train "$mark" -q -n 3 --set parallel.backup_replay=$transport/metrics.jsonl
    [ "$(digest)" = "$want" ] || fail "$transport: the replay has other weights"
done
run 0 "$tandem" eval shm

# Wrong input.
run 2 "$tandem" train "$mark" -n 1
has 'parallel.backup'
run 2 "$tandem" train "$mark" -n 3 --set parallel.compress=bf16
run 2 "$tandem" train "$mark" -n 3 --set parallel.backup=0 --set parallel.backup_replay=x
timeout 60 "$tandem" train "$mark" -n 3 --set parallel.backup_replay=nowhere >out 2>&1 &&
    fail "a replay of nothing"
[ "$(grep -c '^tandem train:' out)" = 1 ] || fail "a missing replay is not said once"

# A rank that stands still for a while.
sed -i 's/epochs: 3/epochs: 100000/' "$mark"
"$tandem" train "$mark" -n 3 --run-dir=still >out 2>&1 &
launcher=$!
wait_for 30 past still 3 || fail "the run did not start"
still=$(pid_of 2)
[ -n "$still" ] || fail "no rank 2"
kill -STOP "$still"
now=$(steps still)
wait_for 30 past still $((now + 20)) || fail "a rank that stands still holds the others up"
kill -CONT "$still"
now=$(steps still)
wait_for 30 past still $((now + 5)) || fail "the run does not go on"
kill -INT $launcher
wait $launcher; got=$?
[ $got = 130 ] || fail "Ctrl-C gave $got"
wait_for 5 dead || fail "ranks outlived Ctrl-C"
has 'interrupted after step'
done=$(grep -o 'interrupted after step [0-9]*' out | grep -o '[0-9]*$')
sed -i "s/epochs: 100000/steps: $((done + 4))/" "$mark"
run 0 "$tandem" train "$mark" -q --resume=still -n 3

# kill -9 of a rank.
sed -i "s/steps: $((done + 4))/epochs: 100000/" "$mark"
"$tandem" train "$mark" -n 3 --run-dir=killed >out 2>&1 &
launcher=$!
wait_for 30 past killed 3 || fail "the run did not start"
begin=$SECONDS
kill -9 "$(pid_of 1)"
wait $launcher; got=$?
[ $got = 1 ] || fail "kill -9 of a rank gave $got"
[ $((SECONDS - begin)) -le 10 ] || fail "it took $((SECONDS - begin)) s to notice"
has 'tandem train: .*rank 1'
wait_for 5 dead || fail "ranks outlived the death of one"
