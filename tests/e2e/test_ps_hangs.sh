#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A server, or a worker, of elastic ranks that hangs while its watchdog answers: requests to it have
# the job's timeout, only the one that hangs is killed, and the others go on from where they were.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: hangs
model: [flatten, {linear: 16, act: relu}, linear]
data: {source: digits, count: 300}
train: {batch: 48, epochs: 4, eval: {every: never}, optimizer: {name: adam, lr: 0.01}}
parallel: {threads: 1, timeout: 4}
log: {report: false, tensorboard: false}
JOB
run 0 "$tandem" train "$mark" -q --run-dir one
want=$(digest)
for rank in 0 1 2 3; do
    run 0 "$tandem" train "$mark" -n 2 --servers 3 --sync sync --elastic --hang 6 \
        --set parallel.replicas=1 --run-dir "of-$rank" --faults "hang rank=$rank for=500s at=step:9"
    [ "$(digest)" = "$want" ] || fail "rank $rank hangs: a wrong result: other weights"
    [ "$(grep -c 'made no step forward .* was killed.*starting a replacement' out)" = 1 ] ||
        fail "rank $rank hangs: not it alone is killed: $(grep killed out)"
    ! grep 'goes back' out || fail "rank $rank hangs: steps are repeated from a checkpoint"
done

# An asynchronous rule with rows on servers: a server hangs, and each batch is trained once.
run 0 "$tandem" train "$source/examples/wide-and-deep.yaml" -n 2 --servers 2 --sync asgd --elastic \
    --hang 6 --set parallel.replicas=1 --set parallel.timeout=4 --set train.epochs=1 --threads 1 \
    --set data.count=4096 --set train.eval.every=never --run-dir rows \
    --faults 'hang rank=1 for=500s at=step:9'
[ "$(grep -c 'made no step forward .* was killed.*starting a replacement' out)" = 1 ] ||
    fail "rows: it is not rank 1 alone that is killed: $(grep killed out)"
! grep 'goes back' out || fail "rows: steps are repeated from a checkpoint"
python3 - <<'PY' || fail "rows: not each batch once"
import json
steps = [e["step"] for e in map(json.loads, open("rows/metrics.jsonl")) if e["kind"] == "step"]
assert steps == list(range(1, len(steps) + 1)) and len(steps) > 9, steps
PY
