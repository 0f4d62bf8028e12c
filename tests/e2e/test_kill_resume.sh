#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that is killed with SIGKILL at three random moments, also in the middle of a checkpoint, and
# resumed each time with another number of threads, ends with the digest of a run that went through:
# batch norm, dropout, accumulation, a schedule that depends on validations, a short last batch.
# TD_SEED=N repeats the moments of an earlier run.
set -uo pipefail
tandem=$(realpath "${TD_BUILD:-build}")/tandem
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
RANDOM=${TD_SEED:=$((($(date +%s) + $$) % 32768))}
echo "seed $TD_SEED"

fail() { echo "test_kill_resume: seed $TD_SEED: $*" >&2; exit 1; }
digest_of() { sed -n 's/.*digest sha256:\([0-9a-f]*\).*/\1/p' "$1" | tail -1; }

cat >job.yaml <<'END'
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

"$tandem" train job.yaml --run-dir whole >whole.txt 2>err || fail "status $?: $(cat err)"
want=$(digest_of whole.txt)
[ ${#want} -eq 64 ] || fail "no digest: $(cat whole.txt)"

steps_done() { grep -c '"kind": "step"' killed/metrics.jsonl 2>/dev/null; }
for i in 1 2 3; do
    if [ $i -eq 1 ]; then how=(--run-dir killed); else how=(--resume=killed); fi
    at=$((25 * i + RANDOM % 25)) # a step, and a moment in it or in the checkpoint after it
    "$tandem" train job.yaml "${how[@]}" -j $((1 + i % 3)) >out 2>err &
    pid=$!
    until [ "$(steps_done)" -ge $at ] 2>/dev/null; do
        kill -0 $pid 2>/dev/null || fail "ended before step $at: $(cat out err)"
    done
    for ((n = RANDOM % 3000; n > 0; n--)); do :; done
    kill -9 $pid || fail "kill $i came too late"
    wait $pid 2>/dev/null
    [ $? -eq 137 ] || fail "kill $i came too late: nothing was tested"
done
"$tandem" train job.yaml --resume=killed >out 2>err || fail "resume: status $?: $(cat err)"
have=$(digest_of out)
[ "$have" = "$want" ] || fail "after 3 kills the digest is $have, not $want: $(cat out err)"
echo "killed 3 times; digest ${want:0:16}... in the end"
