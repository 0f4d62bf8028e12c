#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A run that is killed with SIGKILL at three random moments, also in the middle of a checkpoint, and
# resumed each time with another number of threads, ends with the digest of a run that went through:
# batch norm, dropout, accumulation, a schedule that depends on validations, a short last batch.
# TD_SEED=N repeats the moments of an earlier run.
. "$(dirname "$0")/lib.sh"
RANDOM=${TD_SEED:=$((($(date +%s) + $$) % 32768))}
echo "seed $TD_SEED"

cat >"$mark" <<'END'
name: killed
model:
  - {conv2d: 8, kernel: 3, stride: 2}
  - batch_norm
  - relu
  - flatten
  - dropout: 0.2
  - linear
metrics: [accuracy]
data: {source: digits, count: 500}
train:
  batch: 64
  accumulate: 2
  steps: 120
  seed: 3
  clip: 1
  optimizer: {name: adamw, lr: 0.003}
  schedule: {name: plateau, patience: 1}
  eval: {every: 30}
checkpoint: {every: 2, keep: 2}
END

run 0 "$tandem" train "$mark" --run-dir whole
want=$(digest)
[ -n "$want" ] || fail "no digest"

for i in 1 2 3; do
    if [ $i -eq 1 ]; then how=(--run-dir killed); else how=(--resume=killed); fi
    at=$((25 * i + RANDOM % 20)) # a step, and a moment in it or in the checkpoint after it
    run 0 "$source/tests/e2e/kill_at.py" $at $((10 * (RANDOM % 3000))) \
        "$tandem" train "$mark" "${how[@]}" --json -j $((1 + i % 3))
done
run 0 "$tandem" train "$mark" --resume=killed
same "after 3 kills"
echo "killed 3 times; digest ${want:0:23}... in the end"
