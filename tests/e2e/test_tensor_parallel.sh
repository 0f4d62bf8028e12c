#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# parallel.tensor as a user sees it: with parallel.tensor_pieces the digest of one rank on any
# number of tensor parallel ranks, with replicas, over shared memory and TCP, with tied weights, a
# vocabulary in pieces, batch norm, dropout, clipping, accumulation and bf16; checkpoints that know
# nothing of it; norms on rows (parallel.sequence), which take less memory; a rank that is killed;
# bad input.
. "$(dirname "$0")/lib.sh"

cat >mlp.yaml <<'JOB'
name: mlp
model:
  - flatten
  - {linear: 64, act: relu}
  - {linear: 48, act: gelu}
  - dropout: 0.1
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 200, split: {valid: 0.1}}
train: {batch: 64, epochs: 2, micro_batches: 8, clip: 1, optimizer: {name: adamw, lr: 0.002}}
parallel: {tensor_pieces: 4}
JOB
cat >cnn.yaml <<'JOB'
name: cnn
model:
  - {conv2d: 32, kernel: 3, act: relu}
  - {conv2d: 16, kernel: 3, stride: 2, act: relu}
  - batch_norm
  - {conv2d: 32, kernel: 3, stride: 2}
  - max_pool: 2
  - flatten
  - dropout: 0.2
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 120, split: {valid: 0.1}}
train: {batch: 30, epochs: 1, micro_batches: 6, accumulate: 2, clip: 1, optimizer: sgd}
parallel: {tensor_pieces: 2}
JOB
cat >channels.yaml <<'JOB'
name: channels
model:
  - {conv2d: 32, kernel: 3, stride: 2, act: relu}
  - {conv2d: 32, kernel: 3, stride: 2}
  - relu
  - {conv2d: 32, kernel: 3, stride: 2, act: relu}
  - global_avg_pool
  - linear
data: {source: digits, count: 40, split: {valid: 0.1}}
train: {batch: 12, epochs: 1, micro_batches: 2, clip: 1, optimizer: adam}
parallel: {tensor_pieces: 4}
JOB
python3 -c '
for i in range(300):
    print("".join(chr(33 + (i * 31 + k * k * 7) % 94) for k in range(40)), i)' >text.txt
cat >gpt.yaml <<'JOB'
name: gpt
model: {name: gpt2, layers: 2, heads: 4, width: 64, dropout: 0.1}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.05}}
train:
  {batch: 16, steps: 6, micro_batches: 4, clip: 1, precision: bf16, optimizer: adamw,
   eval: {every: 3}}
parallel: {tensor_pieces: 4}
JOB

# cell JOB RANKS AXES TRANSPORT
cell() {
    run 0 "$tandem" train "$1.yaml" -q -n "$2" --parallel "$3" --set "parallel.transport=$4"
    same "$1 on $2 ranks, $3, $4"
}

for job in mlp cnn gpt; do
    run 0 "$tandem" train $job.yaml -q
    want=$(digest)
    [ -n "$want" ] || fail "no digest"
    if [ -n "${TD_TEST_FULL:-}" ]; then
        for transport in shm tcp; do
            cell $job 2 tensor=2 $transport
            cell $job 4 tensor=2 $transport
            cell $job 8 data=4,tensor=2 $transport
        done
        [ $job = cnn ] || cell $job 8 data=2,tensor=4 shm
    fi
    cell $job 2 tensor=2 shm
    [ $job = cnn ] || cell $job 4 tensor=4 tcp
    cell $job 4 data=2,tensor=2 shm
    run 0 "$tandem" train $job.yaml -q -n 2 --parallel tensor=2 --set train.backend=far
    same "$job on device far"
done

# Channels, heads and the vocabulary in four pieces on one, two and four ranks, also where the host
# cannot read what the kernels use.
run 0 "$tandem" train channels.yaml -q
want=$(digest)
cell channels 2 tensor=2 shm
cell channels 4 tensor=4 shm
for job in channels gpt; do
    [ $job = channels ] || { run 0 "$tandem" train $job.yaml -q && want=$(digest); }
    run 0 "$tandem" train $job.yaml -q -n 4 --parallel tensor=4 --set train.backend=far
    same "$job on four devices far"
done

# Checkpoints do not know how the ranks were arranged.
run 0 "$tandem" train gpt.yaml -q -n 2 --parallel tensor=2 --set train.steps=3 --run-dir half
cp -r half staged
run 0 "$tandem" train gpt.yaml -q --resume=half
same "going on with one rank"
run 0 "$tandem" train gpt.yaml -q --resume=staged -n 2 --parallel pipeline=2
same "going on with two stages"
run 0 "$tandem" train gpt.yaml -q -n 2 --parallel pipeline=2 --set train.steps=3 --run-dir stages
run 0 "$tandem" train gpt.yaml -q --resume=stages -n 4 --parallel tensor=4
same "going on from two stages with four ranks"
run 0 "$tandem" train gpt.yaml -q --set train.steps=3 --run-dir alone
run 0 "$tandem" train gpt.yaml -q --resume=alone -n 4 --parallel data=2,tensor=2
same "going on with two replicas of two ranks"

# A rank has its pieces alone, of params, gradients and states: planned and measured.
cat >wide.yaml <<'JOB'
name: wide
model: [flatten, {linear: 2048, act: relu}, {linear: 2048, act: relu}, {linear: 2048}, linear]
data: {source: digits, count: 64}
train: {batch: 16, steps: 2, micro_batches: 2, optimizer: adamw}
parallel: {tensor_pieces: 2}
JOB
# megabytes WORD: the number after it, in MB
megabytes() {
    sed -n "s/.*$1 \([0-9.]*\) \([kMG]\)B.*/\1 \2/p" out |
        awk '{ print int($1 * ($2 == "G" ? 1000 : $2 == "k" ? 0.001 : 1)) }'
}
run 0 "$tandem" train wide.yaml
want=$(digest)
peak=$(megabytes peak) planned=$(megabytes planned)
run 0 "$tandem" train wide.yaml -n 2 --parallel tensor=2
same "wide layers"
[ "$(megabytes peak)" -lt $((peak * 6 / 10)) ] || fail "peak $peak MB on one rank"
[ "$(megabytes planned)" -lt $((planned * 6 / 10)) ] || fail "planned $planned MB for one rank"

# Norms, dropout and residual sums on rows: other bits than without, the same on all ranks, with
# replicas, stages and checkpoints.
sed 's/tensor_pieces: 4/tensor_pieces: 4, sequence: true/' gpt.yaml >rows.yaml
run 0 "$tandem" train gpt.yaml -q
without=$(digest)
run 0 "$tandem" train rows.yaml -q
want=$(digest)
[ "$want" != "$without" ] || fail "parallel.sequence changes nothing"
cell rows 2 tensor=2 shm
cell rows 4 tensor=4 tcp
cell rows 4 data=2,tensor=2 shm
cell rows 4 pipeline=2,tensor=2 shm
run 0 "$tandem" train rows.yaml -q -n 2 --parallel tensor=2 --set train.backend=far
same "rows on two devices far"
run 0 "$tandem" train rows.yaml -q -n 2 --parallel tensor=2 --set train.steps=3 --run-dir rows
run 0 "$tandem" train rows.yaml -q --resume=rows -n 4 --parallel tensor=4
same "rows, going on with four ranks"

# activations SET: those of a rank of four, in kB
activations() {
    run 0 "$tandem" check rows.yaml -n 4 --parallel tensor=4 --set model.layers=4 \
        --set data.context=128 --set train.precision=f32 --set "parallel.sequence=$1"
    awk '/zero 0/ { print int($10 * ($11 == "MB" ? 1000 : $11 == "GB" ? 1e6 : 1)) }' out
}
whole=$(activations false) rows=$(activations true)
[ "${rows:-0}" -gt 0 ] && [ "$rows" -lt $((whole * 80 / 100)) ] ||
    fail "activations of $rows kB by rows, $whole kB without"

# Without pieces that are given, ranks agree with each other, and about with one rank.
sed -e '/dropout/d' -e '/^parallel/d' mlp.yaml >plain.yaml
# losses: of each step and validation of the last run
losses() {
    python3 -c '
import json, sys
for line in open(sys.argv[1] + "/metrics.jsonl"):
    e = json.loads(line)
    if e["kind"] == "step":
        print("train", e["step"], e["loss"])
    if e["kind"] == "eval":
        print("valid", e["step"], e["metrics"]["loss"])' "$(sed -n 's/ done step 8 .*//p' out)"
}
run 0 "$tandem" train plain.yaml -q
losses >one
[ "$(grep -c ^train one)" = 8 ] || fail "no losses of 8 steps"
for ranks in 2 3 4; do
    # 48 outputs are 3 pieces, 64 and 32 are not
    run 0 "$tandem" train plain.yaml -q -n "$ranks" --parallel "tensor=$ranks"
    losses >several
    paste -d ' ' one several | awk -v ranks="$ranks" '
        { d = $3 - $6; d = d < 0 ? -d : d }
        $1 != $4 || $2 != $5 || !($3 > 0) || d > 1e-4 * $3 {
            print "on", ranks, "ranks:", $0; bad = 1 }
        END { exit bad || NR < 9 }' >differ || fail "other losses: $(cat differ)"
done

# A product by itself.
run 0 "$build/examples/09_product"
one=$(grep -o 'C\[0\]\[0\] = [^,]*' out)
[ -n "$one" ] || fail "no product"
run 0 "$tandem" launch -n 4 "$build/examples/09_product"
[ "$(grep -cF "$one" out)" = 4 ] || fail "another product on four ranks"

# A rank that is killed ends the job, with its name.
run 1 "$tandem" train gpt.yaml -q -n 2 --parallel tensor=2 --faults "kill rank=1 at=step:3"
has 'rank 1'
dead || fail "processes are left"

run 2 "$tandem" train mlp.yaml -q -n 3 --parallel tensor=2
has 'needs a multiple of 2 ranks, and there are 3: use -n 4'
run 2 "$tandem" train mlp.yaml -q -n 3 --parallel tensor=3
has '4 pieces do not divide by 3 ranks'
run 2 "$tandem" check mlp.yaml -q -n 3 --parallel tensor=2
has 'tensor=2 '
run 2 "$tandem" train mlp.yaml -q --set parallel.tensor_pieces=3
has 'parallel.tensor_pieces: 3 is not 2, 4 or 8'
run 2 "$tandem" train gpt.yaml -q -n 2 --parallel tensor=2 --set model.heads=2
has '4 pieces do not divide the 2 heads'
run 2 "$tandem" train mlp.yaml -q -n 2 --parallel tensor=2 \
    --set 'model=[flatten, {linear: 12}, linear]'
has 'no layer of the model is wide enough for 4 pieces'
run 2 "$tandem" train plain.yaml -q --set parallel.sequence=true
has 'parallel.sequence: nothing is in pieces: set parallel.tensor_pieces or parallel.tensor'
for ranks in 1 2; do
    run 2 "$tandem" train rows.yaml -q -n $ranks --parallel tensor=$ranks \
        --set data.context=15 --set train.micro_batches=16
    has 'parallel.sequence: no norm or sum between .* that 4 pieces divide'
done
run 2 "$tandem" train mlp.yaml -q -n 2 --parallel tensor=2 --set train.optimizer=lamb
has 'lamb needs the norms of whole layers'
run 2 "$tandem" train mlp.yaml -q -n 2 --parallel tensor=2 --threads 2
has 'one compute thread each'
echo "test_tensor_parallel: passed"
