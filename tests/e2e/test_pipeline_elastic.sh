#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# Pipelines on elastic ranks: whichever rank of a 2x2 mesh is killed, at whichever operation, the
# run goes on with the same bits. A stage's state comes from its other replica; where there is none,
# from the rank that mirrors it. Nothing is read from disk: there are no checkpoints to go back to.
. "$(dirname "$0")/lib.sh"

for i in $(seq 400); do echo "line $i of a text, and $((i * 7 % 13)) more"; done >text.txt
cat >gpt.yaml <<'JOB'
name: gpt
model: {name: gpt2, layers: 3, heads: 2, width: 32}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.05}}
train: {batch: 16, steps: 8, micro_batches: 4, clip: 1, optimizer: adamw, eval: {every: 4}}
checkpoint: {every: end}
JOB
cat >cnn.yaml <<'JOB'
name: cnn
model:
  - {conv2d: 4, kernel: 3, act: relu}
  - batch_norm
  - {conv2d: 4, kernel: 3, stride: 2, act: relu}
  - batch_norm
  - flatten
  - dropout: 0.2
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 200}
train: {batch: 40, epochs: 2, micro_batches: 4, optimizer: adamw}
JOB
cat >tiny.yaml <<'JOB'
name: tiny
model: [flatten, {linear: 16, act: relu}, {linear: 12, act: relu}, {linear: 12, act: relu}, linear]
data: {source: digits, count: 60}
train: {batch: 20, epochs: 2, micro_batches: 2, optimizer: {name: adamw, lr: 0.002}}
JOB

# killed JOB RANKS STAGES WHERE: by kill -9, there, and what the run ends with.
killed() {
    run 0 "$tandem" train "$1.yaml" -n "$2" --elastic --set "parallel.pipeline=$3" \
        --faults "kill $4"
    same "$1 on $2 ranks in $3 stages, kill $4"
    has 'was killed by signal 9'
    ! grep -q 'goes back to step' out || fail "$1 on $2 ranks in $3 stages, kill $4: state was lost"
    dead || fail "processes are left"
}

run 0 "$tandem" train gpt.yaml -q
want=$(digest)
[ -n "$want" ] || fail "no digest"
run 0 "$tandem" train gpt.yaml -q -n 4 --elastic --parallel data=2,pipeline=2
same "gpt on elastic ranks"
for rank in 0 1 2 3; do
    killed gpt 4 2 "rank=$rank at=step:5"
done
killed gpt 2 2 "rank=1 at=step:3"
killed gpt 3 3 "rank=1 at=step:4:comm:7"

run 0 "$tandem" train cnn.yaml -q
want=$(digest)
killed cnn 4 2 "rank=2 at=step:4"
killed cnn 2 2 "rank=0 at=step:4:comm:5"

# Operations of a step: messages between stages, sums over replicas, numbers, shards.
run 0 "$tandem" train tiny.yaml -q --set train.steps=3
want=$(digest)
if [ -n "${TD_TEST_FULL:-}" ]; then
    for plan in pipeline=2 pipeline=4 data=2,tensor=2 "data=2,pipeline=2 --set parallel.zero=1"; do
        # shellcheck disable=SC2086 # options
        timeout 1800 "$tandem" train tiny.yaml -n 4 --set parallel.tensor_pieces=2 \
            --parallel $plan --faults-sweep >out 2>&1 || fail "$plan: the sweep gave $?"
        has 'ended with the digest of the run without faults, 0 did not'
    done
else
    for where in "0 at=step:2:comm:2" "1 at=step:2:comm:4" "2 at=step:1:comm:6" \
        "3 at=step:2:comm:8"; do
        run 0 "$tandem" train tiny.yaml -q -n 4 --elastic --set parallel.pipeline=2 \
            --set train.steps=3 --faults "kill rank=$where"
        same "tiny, kill rank=$where"
        ! grep -q 'goes back to step' out || fail "tiny, kill rank=$where: state was lost"
    done
fi
for where in "1 at=step:2:comm:3" "2 at=step:3:broadcast"; do
    run 0 "$tandem" train tiny.yaml -q -n 4 --elastic --set parallel.pipeline=2 \
        --set train.steps=3 --set parallel.zero=1 --faults "kill rank=$where"
    same "tiny with shared states, kill rank=$where"
    ! grep -q 'goes back to step' out || fail "zero, kill rank=$where: state was lost"
done
run 0 "$tandem" train tiny.yaml -q -n 4 --elastic --set parallel.pipeline=2 --set train.steps=3 \
    --set parallel.compress=bf16 --faults "kill rank=3 at=step:2:comm:4"
has 'was killed by signal 9'

# Any number of ranks: as many stages, or replicas of one. check says what train does.
for arranged in "3 pipeline=2" "5 data=2,tensor=2"; do
    read -r ranks mesh <<<"$arranged"
    run 0 "$tandem" check tiny.yaml -n "$ranks" --elastic --parallel "$mesh" --plan
    run 0 "$tandem" train tiny.yaml -q -n "$ranks" --elastic --parallel "$mesh" --set train.steps=3
done
run 0 "$tandem" train tiny.yaml -q -n 3 --elastic --parallel pipeline=2 --set train.steps=3
same "3 elastic ranks, pipeline=2"
run 0 "$tandem" check tiny.yaml -n 3 --elastic --parallel pipeline=2
has '^pipeline, pipeline=3'
run 0 "$tandem" check cnn.yaml -n 7 --elastic --parallel pipeline=2 # more ranks than layers
has '^pipeline, data=7'
! grep -q 'bubble' out || fail "a bubble of one stage"
run 2 "$tandem" train tiny.yaml -q -n 3 --parallel pipeline=2
has 'use -n 4'

refused() {
    run 2 "$tandem" train tiny.yaml -q -n 4 --elastic --parallel pipeline=2 --set "$1"
    has 'elastic ranks not with'
}
refused parallel.update=in-order
refused parallel.schedule=pipedream
run 2 "$tandem" train tiny.yaml -q -n 4 --elastic --parallel data=2,tensor=2 \
    --set parallel.compress=bf16
has 'parallel.tensor: elastic ranks not with parallel.compress'
echo "test_pipeline_elastic: passed"
