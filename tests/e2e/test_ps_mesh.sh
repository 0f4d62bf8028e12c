#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# Workers of parameter servers that are meshes: one worker has the bits of one that is a single
# rank, whatever its mesh; several train, are replayed and resumed; a worker of which a rank is
# killed is left out, and the others go on.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: net
model: [{conv2d: 4, kernel: 3, stride: 2}, batch_norm, relu, flatten, {dropout: 0.2}, linear]
data: {source: digits, count: 300}
train: {batch: 48, epochs: 2, micro_batches: 6, optimizer: {name: adamw, lr: 0.01}, clip: 1}
parallel: {threads: 1}
log: {report: false}
JOB

# same N SERVERS MESH MORE...: the digest that is wanted
same() {
    local n=$1 servers=$2 mesh=$3; shift 3
    run 0 "$tandem" train "$mark" -q -n "$n" --servers "$servers" --parallel "$mesh" "$@"
    [ "$(digest)" = "$want" ] || fail "$n ranks, $servers servers, $mesh $*: other weights"
}
# Each batch is pushed and has fresh params: the bits of one rank without servers.
run 0 "$tandem" train "$mark" -q
want=$(digest)
each=(--sync downpour --set train.sync.n_push=1 --set train.sync.n_fetch=1)
same 4 2 data=2,pipeline=2 "${each[@]}"
same 2 1 data=2 "${each[@]}"
same 2 2 pipeline=2 --sync asgd
same 4 2 data=2,pipeline=2 --sync ssp --set parallel.transport=tcp
# Batches between pushes and pulls: those of a worker that is one rank.
some=(--sync downpour --set train.sync.n_push=2 --set train.sync.n_fetch=3)
run 0 "$tandem" train "$mark" -q -n 1 --servers 1 "${some[@]}"
want=$(digest)
same 2 1 pipeline=2 "${some[@]}"
same 4 2 data=2,pipeline=2 "${some[@]}"
same 3 2 data=3 "${some[@]}" --set parallel.transport=tcp
same 4 1 data=2,pipeline=2 "${some[@]}" --set train.backend=far
same 4 1 data=2,pipeline=2 "${some[@]}" --set parallel.update=in-order

# Two replicas of two stages each: all batches are used once, by both.
run 0 "$tandem" train "$mark" -q -n 4 --servers 2 --parallel pipeline=2 "${some[@]}" \
    --run-dir two --set train.epochs=6
first=$(digest)
python3 - <<'PY' || fail "metrics.jsonl of two replicas"
import json
steps = [e for e in map(json.loads, open("two/metrics.jsonl")) if e["kind"] == "step"]
assert [e["step"] for e in steps] == list(range(1, 43)), steps
assert {r for e in steps for r in e["counted"]} == {2, 4}, "the first ranks of both workers"
epochs = {}
for e in steps:
    epochs[e["epoch"]] = epochs.get(e["epoch"], 0) + e["samples"]
assert len(epochs) == 6 and set(epochs.values()) == {max(epochs.values())}, epochs
PY
run 0 "$tandem" train --replay two -q
[ "$(digest)" = "$first" ] || fail "the replay of two replicas has other weights"
run 0 "$tandem" train -q --resume=two -n 2 --servers 1 --set train.epochs=7 \
    --parallel data=2,pipeline=1
if [ -n "${TD_TEST_FULL:-}" ]; then
    run 0 "$tandem" train "$source/examples/digits.yaml" -q -n 4 --servers 1 --parallel pipeline=2 \
        --sync downpour
    accuracy=$(grep -o 'test accuracy [0-9.]*' out | grep -o '[0-9.]*$')
    awk "BEGIN { exit !($accuracy >= 97.5) }" || fail "two replicas: test accuracy $accuracy %"
fi

# kill -9 of any rank of a worker: it is left out with all its ranks, the other goes on.
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"kind": *"step"'; }
past() { [ "$(steps "$1")" -ge "$2" ]; }
pid_of() { # RANK
    pgrep -f "train .*-- $mark" | while read -r p; do
        grep -qz "^TANDEM_RANK=$1\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done
}
found() { pid=$(pid_of "$1"); [ -n "$pid" ]; }
ended() { ! kill -0 $launcher 2>/dev/null; }
for rank in 3 4; do # the second of the first worker, the first of the second
    transport=$([ $rank = 3 ] && echo shm || echo tcp)
    "$tandem" train "$mark" -n 4 --servers 2 --parallel pipeline=2 --sync downpour \
        --run-dir=kill-$rank --set train.epochs=60 --set train.eval.every=1000000 \
        --set parallel.transport=$transport --faults "slow rank=$rank for=20ms at=step:1; \
            slow rank=$rank for=20ms at=step:2" >out 2>&1 &
    launcher=$!
    soon found $rank || fail "the run did not start"
    soon past kill-$rank 3 || fail "the run made no steps"
    kill -9 "$pid"
    soon ended || fail "kill -9 of rank $rank: the run does not end"
    wait $launcher; got=$?
    [ $got = 0 ] || fail "kill -9 of rank $rank: $got"
    has 'continues with 1 of 2 workers'
    none_left "the death of rank $rank"
    python3 - kill-$rank <<'PY' || fail "metrics.jsonl after the death of rank $rank"
import json, sys
steps = [e for e in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if e["kind"] == "step"]
assert [e["step"] for e in steps] == list(range(1, 421)), len(steps)
epochs = {}
for e in steps:
    epochs[e["epoch"]] = epochs.get(e["epoch"], 0) + e["samples"]
assert len(epochs) == 60 and set(epochs.values()) == {max(epochs.values())}, epochs
PY
done

# Bad input: one line, before any rank starts.
bad() { # TEXT ARGUMENTS...
    local text=$1; shift
    run 2 "$tandem" train "$mark" --run-dir never "$@"
    has "$text"
    [ "$(wc -l <out)" = 1 ] || fail "$*: more than a line"
    [ ! -e never ] || fail "$*: a folder was made"
}
bad '3 ranks cannot be workers of 2 ranks each (pipeline=2): start a multiple of 2' \
    -n 3 --servers 1 --sync asgd --parallel pipeline=2
bad 'workers of the rule sync share each batch themselves' \
    -n 2 --servers 1 --sync sync --parallel data=2
bad 'asgd cannot be combined with parallel.tensor' -n 2 --servers 1 --sync asgd --parallel tensor=2
bad 'workers that are meshes (pipeline=2) not with elastic ranks' -n 2 --servers 2 --sync asgd \
    --parallel pipeline=2 --elastic --set parallel.replicas=1
bad 'parallel.schedule pipedream: not with parallel.servers' -n 2 --servers 1 --sync asgd \
    --parallel pipeline=2 --set parallel.schedule=pipedream
bad 'cannot be cut into 9 chunks' -n 9 --servers 1 --sync asgd --parallel pipeline=9
none_left "the runs"
