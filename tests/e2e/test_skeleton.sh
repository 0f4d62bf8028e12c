#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# parallel.partition: skeleton as a user sees it: what it promises about bits, checkpoints, fewer
# bytes, the table of compare, bad input.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'JOB'
name: job
model:
  - {conv2d: 8, kernel: 3, stride: 2, act: relu}
  - batch_norm
  - flatten
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 400, split: {valid: 0.1}}
train: {batch: 32, epochs: 2, micro_batches: 8, optimizer: {name: adam, lr: 0.002}}
parallel: {partition: skeleton, skeleton_every: 7}
JOB

# It sends its own block of gradients, which is not set against one that it does not send.
run 0 "$tandem" train job.yaml -n 2 --set train.epochs=1
has 'gradients  *[0-9.]* [kM]*B sent by each rank$'

# A function of the number of ranks, the seed, the share and the interval, and of nothing else.
run 0 "$tandem" train job.yaml -q -n 2
two=$(digest)
run 0 "$tandem" train job.yaml -q -n 3 --run-dir first
want=$(digest)
[ "$want" != "$two" ] || fail "two and three ranks end alike"
run 0 "$tandem" train job.yaml -q -n 3 --set parallel.transport=tcp
same "over TCP"
run 0 "$tandem" train job.yaml -q -n 3 --set train.eval.every=2 --set parallel.threads=2
same "with validations in between, and more threads"
run 0 "$tandem" train job.yaml -q -n 3 --set train.epochs=1 --run-dir half
run 0 "$tandem" train job.yaml -q -n 3 --resume=half
same "resumed"
for other in skeleton_share=0.2 skeleton_every=5; do
    run 0 "$tandem" train job.yaml -q -n 3 --set parallel.$other
    [ "$(digest)" != "$want" ] || fail "$other decides nothing"
done

# On another number of ranks the run goes on as well.
run 0 "$tandem" train job.yaml -q -n 2 --resume=half --set train.epochs=3
has 'done step'

# A skeleton of all connections is synchronous SGD; one rank holds everything.
run 0 "$tandem" train job.yaml -q -n 3 --set parallel.partition=all --sync ssgd
want=$(digest)
run 0 "$tandem" train job.yaml -q -n 3 --set parallel.skeleton_share=1
same "a skeleton of everything"
run 0 "$tandem" train job.yaml -q --set parallel.partition=all
want=$(digest)
run 0 "$tandem" train job.yaml -q
same "one rank"

sed 's/partition: skeleton, //' job.yaml >plain.yaml
run 0 "$tandem" compare plain.yaml -n 2 --sync exact,skeleton
has '^skeleton .*(1/1\.'
run 0 "$tandem" help job sync
has 'random partition'

# refused WORDS OPTIONS...
refused() {
    local words=$1
    shift
    run 2 "$tandem" train job.yaml -q -n 2 "$@"
    has "$words"
    [ "$(wc -l <out)" = 1 ] || fail "more than one line"
}
refused 'not with parallel.pipeline' --parallel pipeline=2
refused 'not with parallel.tensor' --parallel tensor=2
refused 'not with parallel.zero' --set parallel.zero=1
refused 'not with parallel.compress' --set parallel.compress=bf16
refused 'start fixed ranks' --elastic
refused 'use train.clip.value' --set train.clip.norm=1
refused 'use adam or sgd' --set train.optimizer=lamb
refused 'set train.backend to cpu' --set train.backend=far
refused 'skeleton_share' --set parallel.skeleton_share=0
refused 'easgd cannot be combined with parallel.partition' --sync easgd
echo "test_skeleton: passed"
