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

begin=$(date +%s%N)
"$tandem" train job.yaml --run-dir whole >whole.txt 2>err || fail "status $?: $(cat err)"
took=$((($(date +%s%N) - begin) / 1000000)) # milliseconds
want=$(digest_of whole.txt)
[ ${#want} -eq 64 ] || fail "no digest: $(cat whole.txt)"

kills=0 # a kill that came before the first checkpoint, or after the end, does not count
for try in $(seq 30); do
    if [ -e killed/checkpoints/latest ]; then how=(--resume=killed); else how=(--run-dir killed); fi
    [ -e killed/checkpoints/latest ] || rm -rf killed
    ms=$((took / 10 + RANDOM * took / 4 / 32768))
    ( # the shell's own remark that something was killed goes nowhere
        timeout -s KILL "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))" \
            "$tandem" train job.yaml "${how[@]}" -j $((1 + try % 3)) >out 2>err
        exit $?
    ) 2>/dev/null
    status=$?
    [ $status -ne 0 ] || break # it was faster this time
    [ $status -eq 137 ] || fail "status $status: $(cat err)"
    [ -e killed/checkpoints/latest ] && kills=$((kills + 1))
    [ $kills -lt 3 ] || break
done
if [ $status -ne 0 ]; then
    "$tandem" train job.yaml --resume=killed >out 2>err || fail "resume: status $?: $(cat err)"
fi
[ $kills -ge 1 ] || fail "no kill came in time: nothing was tested"
have=$(digest_of out)
[ "$have" = "$want" ] || fail "after $kills kills the digest is $have, not $want: $(cat out err)"
echo "killed $kills times in a run of $took ms; digest ${want:0:16}... in the end"
