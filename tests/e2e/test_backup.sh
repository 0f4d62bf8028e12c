#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Backup workers as a user sees them: a rank that stands still holds nobody up, what it does later
# is dropped and reported, a run is replayed from its metrics with the same digest; a killed rank.
. "$(dirname "$0")/lib.sh"

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
train: {batch: 48, epochs: 3, micro_batches: 12, optimizer: {name: adamw, lr: 0.01}, clip: 1}
parallel: {backup: 1, threads: 1}
JOB

# A run, and its replay.
for transport in shm tcp; do
    run 0 "$tandem" train "$mark" -n 3 --run-dir=$transport --set parallel.transport=$transport
    has '^  dropped  '
    want=$(digest)
    grep -q 'late and dropped' $transport/report.html || fail "$transport: nothing in the report"
    python3 - $transport <<'PY' || fail "$transport: metrics.jsonl"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
steps = [e for e in events if e["kind"] == "step"]
assert all(len(e["counted"]) == 2 and e["counted"][0] == 0 for e in steps), steps[0]
end = [e for e in events if e["kind"] == "end"][-1]
assert len(end["dropped"]) == 3 and sum(end["dropped"]) <= len(steps), end
assert any(e["kind"] == "eval" for e in events)
with open("turns.jsonl", "w") as f:
    for e in steps:
        f.write(json.dumps({**e, "counted": [0, 1 + e["step"] % 2]}) + "\n")
PY
    run 0 "$tandem" train "$mark" -q -n 3 --set parallel.backup_replay=$transport/metrics.jsonl
    [ "$(digest)" = "$want" ] || fail "$transport: the replay has other weights"

    # Times, bytes and blame of all ranks; what they did when. Of two that race, one may be late
    # with all it does: here they take turns.
    run 0 "$tandem" train "$mark" -n 3 --run-dir=turns-$transport --profile \
        --set parallel.transport=$transport --set parallel.backup_replay=turns.jsonl
    grep -q 'sent by a rank in a step' turns-$transport/report.html || fail "$transport: no ranks"
    python3 - turns-$transport <<'PY' || fail "$transport: metrics.jsonl of those who take turns"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
steps = [e for e in events if e["kind"] == "step"]
assert all(e["counted"] == [0, 1 + e["step"] % 2] for e in steps), steps
params = events[0]["params"]
total = lambda key: [sum(e[key][r] for e in events if e["kind"] == "ranks") for r in range(3)]
sent, n = total("nbytes"), len(steps)
assert params * 4 * n <= sent[0] <= (params + 99) * 4 * (2 * n + 2), (params, n, sent)
assert all(params * 4 <= s <= (params + 99) * 4 * n for s in sent[1:]), (params, n, sent)
assert all(min(total(k)) > 0 for k in ("seconds", "compute", "wait")), total("compute")
assert total("blame")[0] == 0 < sum(total("blame")), total("blame")
spans = {(e["pid"], e["name"].split()[0]) for e in json.load(open(sys.argv[1] + "/trace.json"))}
assert all((r, name) in spans for r in range(3) for name in ("step", "wait", "micro-batch")), spans
PY
done
run 0 "$tandem" eval shm

# Wrong input.
run 2 "$tandem" train "$mark" -n 1
has 'parallel.backup'
run 2 "$tandem" train "$mark" -n 3 --set parallel.compress=bf16
run 2 "$tandem" train "$mark" -n 3 --set parallel.backup=0 --set parallel.backup_replay=x
for replay in nowhere "$mark" .; do
    run 2 "$tandem" train "$mark" -n 3 --run-dir never --set "parallel.backup_replay=$replay"
    [ "$(wc -l <out)" = 1 ] && [ ! -e never ] || fail "a replay of $replay is not refused at once"
done
run 2 "$tandem" train "$mark" -n 4 --set parallel.backup_replay=shm/metrics.jsonl
has 'shm/metrics.jsonl is of a run on 3 ranks, and there are 4'

# A rank that stands still for a while.
sed -i 's/epochs: 3/epochs: 100000/' "$mark"
"$tandem" train "$mark" -n 3 --run-dir=still >out 2>&1 &
launcher=$!
soon past still 3 || fail "the run did not start"
still=$(pid_of 2)
[ -n "$still" ] || fail "no rank 2"
kill -STOP "$still"
now=$(steps still)
soon past still $((now + 20)) || fail "a rank that stands still holds the others up"
kill -CONT "$still"
now=$(steps still)
soon past still $((now + 5)) || fail "the run does not go on"
kill -INT $launcher
wait $launcher; got=$?
[ $got = 130 ] || fail "Ctrl-C gave $got"
none_left "Ctrl-C"
has 'interrupted after step'
done=$(grep -o 'interrupted after step [0-9]*' out | grep -o '[0-9]*$')
sed -i "s/epochs: 100000/steps: $((done + 4))/" "$mark"
run 0 "$tandem" train "$mark" -q --resume=still -n 3

# kill -9 of a rank.
sed -i "s/steps: $((done + 4))/epochs: 100000/" "$mark"
"$tandem" train "$mark" -n 3 --run-dir=killed >out 2>&1 &
launcher=$!
soon past killed 3 || fail "the run did not start"
kill -9 "$(pid_of 1)"
wait $launcher; got=$?
[ $got = 1 ] || fail "kill -9 of a rank gave $got"
has 'tandem train: .*rank 1'
none_left "the death of one"
