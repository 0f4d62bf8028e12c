#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# parallel.compress as a user sees it: a small convolutional network learns its digits on four ranks
# with every compressor, with as few bytes as promised; the same bits over shared memory and TCP;
# resuming; what is refused.
. "$(dirname "$0")/lib.sh"

# accuracy: of the test part, in hundredths of a per cent
accuracy() { sed -n 's/.*test accuracy \([0-9]*\)\.\([0-9][0-9]\) %.*/\1\2/p' out; }
# ended KEY: its number in the end event of the run that ./out is of
ended() {
    grep -h '"kind": "end"' "$(sed -n 's/ done step .*//p' out)/metrics.jsonl" |
        sed -n "s/.*\"$1\": \([0-9.e+]*\).*/\1/p"
}
train() { local status=$1; shift; run "$status" "$tandem" train job.yaml -q -n 4 "$@"; }

cat >job.yaml <<'JOB'
name: digits
model:
  - {conv2d: 8, kernel: 3, padding: 1, act: relu}
  - max_pool: 2
  - {conv2d: 16, kernel: 3, padding: 1}
  - {batch_norm: , act: relu}
  - max_pool: 2
  - flatten
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 6000}
train:
  batch: 64
  micro_batches: 4
  epochs: 3
  optimizer: {name: sgd, lr: 0.05, momentum: 0.9, nesterov: true}
  schedule: {name: cosine, warmup_steps: 20}
checkpoint: end
log: {report: false, tensorboard: false}
JOB

train 0
plain=$(accuracy)
[ "$plain" -ge 9700 ] || fail "only $plain without compression"
# compressor, and the least ratio of its last step
while read -r name least; do
    train 0 --set parallel.compress="$name"
    [ "$(accuracy)" -ge $((plain - 200)) ] || fail "$name: accuracy $(accuracy), not $plain"
    awk "BEGIN { exit !($(ended last_ratio) >= $least) }" ||
        fail "$name: $(ended last_ratio) times fewer bytes, not $least"
    awk "BEGIN { exit !($(ended plain_nbytes) > $(ended sent_nbytes)) }" || fail "$name: bytes"
done <<'LIST'
bf16 1.99
f16 1.99
topk 200
powersgd 12
onebit 27
LIST

short=(--set train.epochs=1 --set train.steps=8)
for name in bf16 f16 topk powersgd onebit; do
    train 0 "${short[@]}" --set parallel.compress=$name
    want=$(digest)
    train 0 "${short[@]}" --set parallel.compress=$name --set parallel.transport=tcp
    [ "$(digest)" = "$want" ] || fail "$name: other bits over tcp"
done
run 0 "$tandem" train job.yaml -n 4 "${short[@]}" --set parallel.compress=onebit
has 'gradients  .* sent by each rank, .* times less than uncompressed'

# What is owed begins with zero after resuming.
for name in topk powersgd onebit; do
    more=(--set train.schedule=constant --set parallel.compress=$name)
    train 0 --run-dir "$name" --set train.steps=6 "${more[@]}"
    train 0 --resume="$name" --set train.steps=12 "${more[@]}"
    has "$name done step 12"
done

# One rank has nothing to compress.
run 0 "$tandem" train job.yaml -q "${short[@]}"
want=$(digest)
run 0 "$tandem" train job.yaml -q "${short[@]}" --set parallel.compress=topk
[ "$(digest)" = "$want" ] || fail "one rank: compress changed the weights"

# What is kept between steps is in the plan: of a model large enough that it is seen.
planned() { # ARGS...: is it within a sixth of what was measured?
    run 0 "$tandem" train job.yaml -n 4 --set train.steps=2 --set train.eval.every=never \
        --set 'model=[flatten, {linear: 2000, act: relu}, {linear: 2000, act: relu}, linear]' "$@"
    # (the units of both are the same, or a sixth it is not)
    sed -n 's/^  memory *peak \([0-9.]*\) \([kMG]B\) .* planned \([0-9.]*\) \2.*/\1 \3/p' out |
        awk '{d = $1 - $2; ok = d * d * 36 < $1 * $1} END {exit !ok}' ||
        fail "$* needed other memory than planned"
}
planned --set parallel.compress=topk
planned --set parallel.compress=powersgd --set parallel.transport=tcp
planned --set parallel.backup=1

train 2 --set parallel.compress=topk --set train.optimizer=adam
[ "$(wc -l <out)" = 1 ] || fail "more than one line"
has 'parallel.compress: topk needs the optimizer sgd'
train 2 --set parallel.compress=onebit --set 'train.optimizer={name: adamw}'
has 'onebit needs the optimizer sgd'
train 2 --set parallel.compress=bf16 --set parallel.compress_ratio=0.1
has 'parallel.compress_ratio: only with compress: topk, not bf16'
train 2 --set parallel.compress=powersgd --set parallel.zero=1
has 'parallel.zero must be 0'
train 2 --set parallel.compress=gzip
has 'gzip'
