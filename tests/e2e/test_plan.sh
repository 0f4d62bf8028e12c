#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The communication plan of a step: `tandem check --plan` prints it for every sync rule, compressor
# and stage of parallel.zero, as text and as a timeline; a run that did not keep to it would fail.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'JOB'
name: plan
model:
  - flatten
  - {linear: 24, act: relu}
  - {batch_norm: , act: relu}
  - linear
data: {source: digits, count: 150}
train:
  batch: 32
  micro_batches: 4
  epochs: 1
  accumulate: 2
  optimizer: {name: sgd, lr: 0.05}
checkpoint: end
log: {report: false, tensorboard: false}
parallel: {bucket_mb: 0.004, threads: 1}
JOB

# planned ARGUMENT...: the plan is printed, the timeline is JSON with the operations of all ranks,
# and three ranks train by it, in memory that they share and over TCP in turn; the last batch is
# short.
transport=tcp
planned() {
    run 0 "$tandem" check job.yaml -n 3 --plan=plan.json "$@"
    has 'plan sha256:.*, without deadlock'
    has 'data rank 2: '
    has 'update of the params of chunk'
    python3 - <<'PY' || fail "$*: plan.json"
import json
events = json.load(open("plan.json"))
ranks = {e["pid"] for e in events if e["ph"] == "X"}
assert ranks == {0, 1, 2}, ranks
assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
PY
    rm plan.json
    [ $transport = tcp ] && transport=shm || transport=tcp
    run 0 "$tandem" train job.yaml -q -n 3 --set parallel.transport=$transport "$@"
}

planned
planned
planned --set train.clip.norm=1
planned --set train.verify=0.5
for zero in 1 2 3; do
    planned --set parallel.zero=$zero
    planned --set parallel.zero=$zero --set train.optimizer.name=lamb --set train.clip.norm=1
done
for compressor in bf16 f16 topk powersgd onebit; do
    planned --set parallel.compress=$compressor
done
for rule in ssgd ma local-sgd bmuf easgd eamsgd admm diloco dpsgd ensemble-compress; do
    planned --sync "$rule"
done
planned --set train.sync='{rule: ma, tau: 2}'
planned --set train.sync='{rule: diloco, tau: 3, fragments: 2}'
planned --set train.sync='{rule: dpsgd, graph: ring}'
planned --set parallel.partition=skeleton --set parallel.skeleton_every=2

# Two ranks with one partial each add up while they update, or swap buckets whole.
run 0 "$tandem" check job.yaml -n 2 --plan --set train.accumulate=1
has 'sync rule exact-shm, 2 ranks'
[ "$(grep -c 'barrier' out)" = 0 ] || fail "two ranks: a barrier"
run 0 "$tandem" check job.yaml -n 2 --plan --set train.accumulate=1 --set parallel.transport=tcp
has 'sync rule exact-buckets, 2 ranks'
has 'all-gather of .*(bucket 0, from linear2.weight, job.yaml:6)'
has 'update of the params of chunk 0 (the model, job.yaml:4 to 6)'
run 0 "$tandem" check job.yaml -n 2 --plan --parallel pipeline=2 --set parallel.stages=batch_norm1
has 'forward of micro-batch 0 through chunk 0 (linear1, job.yaml:4)'
has 'receive forward values of micro-batch 0 from rank 0, chunk 1 (batch_norm1 to .*:5 to 6)'
run 0 "$tandem" check job.yaml --plan
has 'sync rule exact-local, 1 rank$'

# Servers and workers in lockstep: params go out, sums come in; -n counts workers.
run 0 "$tandem" check job.yaml -n 2 --plan --sync sync --set parallel.servers=2 \
    --set train.accumulate=1
has 'sync rule sync, 4 ranks'
has 'plan sha256:.*, without deadlock'
[ "$(grep -c 'send .* of params to rank [23]' out)" = 4 ] || fail "sync: not 4 shards go out"
[ "$(grep -c 'send .* of sums of gradients to rank [01]' out)" = 4 ] || fail "sync: not 4 pushes"
[ "$(grep -c 'update of the params' out)" = 2 ] || fail "sync: not two updates"

# Rules whose ranks do not go in step say so.
for rule in asgd aeasgd async-peer; do
    servers=(); [ "$rule" = asgd ] && servers=(--set parallel.servers=1)
    run 0 "$tandem" check job.yaml -n 2 --plan --sync "$rule" "${servers[@]}" \
        --set train.accumulate=1
    has 'no plan of a step: '
    run 2 "$tandem" check job.yaml -n 2 --plan=plan.json --sync "$rule" "${servers[@]}" \
        --set train.accumulate=1
    [ ! -e plan.json ] || fail "$rule: plan.json is there"
done
echo "test_plan: passed"
