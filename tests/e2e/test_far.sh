#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# train.backend far, where each byte of weights, gradients and activations that the host touches
# without asking ends the process: the examples whose data is here train to the digest of cpu, on
# one rank, threads and several ranks; evaluation, prediction, resuming and elastic runs work; a
# loss that is not finite is traced to its node.
. "$(dirname "$0")/lib.sh"

# train BACKEND JOB FLAGS...: in a folder of its own
train() {
    local backend=$1 job=$2
    shift 2
    rm -rf "run-$backend"
    run 0 "$tandem" train "$job" --run-dir "run-$backend" --set train.backend="$backend" \
        --set log.report=false --set log.tensorboard=false "$@"
}
# alike JOB FLAGS...
alike() {
    local cpu
    train cpu "$@"
    cpu=$(digest)
    train far "$@"
    [ -n "$cpu" ] && [ "$cpu" = "$(digest)" ] || fail "$*: far ends with $(digest), cpu with $cpu"
}

cat >intents.json <<'JSON'
{"train": [["light on", "on"], ["light off", "off"], ["turn left", "left"], ["turn right", "right"],
  ["go back", "back"], ["stop now", "stop"], ["on please", "on"], ["please stop", "stop"]],
 "val": [["turn on the light", "on"], ["go left", "left"]],
 "test": [["off please", "off"], ["go right", "right"]]}
JSON
text=(--set data.train="$source/LICENSE" --set train.steps=3 --set train.eval.every=3)
alike "$source/examples/digits.yaml" --set data.count=600 --set train.epochs=1
alike "$source/examples/tabular.yaml" --set train.epochs=2 --threads 2
alike "$source/examples/char-lstm.yaml" "${text[@]}" --set data.stride=900
alike "$source/examples/shakespeare-gpt.yaml" "${text[@]}" --set data.stride=900 \
    --set model.layers=1 --set train.batch=8
alike "$source/examples/intents.yaml" --set data.train="$PWD/intents.json" --set train.epochs=2 \
    --set train.batch=4
alike "$source/examples/own-data.yaml" -n 2 --set data.count=600 --set train.epochs=1
# The rules of these two write to the params of other threads; their models train on far by exact.
few=(--set train.sync=auto --set data.count=2000 --set train.epochs=1)
alike "$source/examples/matrix-factorization.yaml" "${few[@]}"
alike "$source/examples/sparse-linear.yaml" "${few[@]}"
mkdir mnist
head_of() { # AXES SIZE...: the head of an idx file of bytes
    printf "\\0\\0\\10\\$1"
    for size in "${@:2}"; do printf "\\0\\0\\0\\$(printf %o "$size")"; done
}
for part in train:128 t10k:32; do
    count=${part#*:}
    { head_of 3 "$count" 28 28 && head -c $((count * 784)) <(yes 0123456789); } \
        >"mnist/${part%:*}-images-idx3-ubyte"
    { head_of 1 "$count" && head -c "$count" <(yes 0123456789 | tr 0-9 '\0-\11' | tr -d '\n'); } \
        >"mnist/${part%:*}-labels-idx1-ubyte"
done
alike "$source/examples/mnist.yaml" --set data.dir="$PWD/mnist" --set train.batch=32 \
    --set train.epochs=1 --set train.eval.batch=32
alike "$source/examples/pipeline-four-layers.yaml" -n 4 --set data.count=600 --set train.epochs=1
alike "$source/examples/pipeline-transformer.yaml" -n 2 "${text[@]}" --set data.stride=900 \
    --set model.layers=2
alike "$source/tests/dist/jobs/cnn.yaml" -n 2 --set parallel.compress=powersgd
alike "$source/tests/dist/jobs/cnn.yaml" -n 2 --set train.verify=0.5 --set parallel.transport=tcp
alike "$source/tests/dist/jobs/gpt.yaml" -n 2:2
alike "$source/tests/dist/jobs/gpt.yaml" -n 2:2 --set parallel.zero=3
alike "$source/tests/dist/jobs/gpt.yaml" -n 2 --set parallel.zero=3
alike "$source/tests/dist/jobs/cnn.yaml" -n 3 --set parallel.zero=2 --set train.optimizer.name=lamb
train cpu "$source/tests/dist/jobs/cnn.yaml" -n 3 --set parallel.backup=1
want=$(digest)
cp run-cpu/metrics.jsonl counted.jsonl
train far "$source/tests/dist/jobs/cnn.yaml" -n 3 --set parallel.backup=1 \
    --set parallel.backup_replay=counted.jsonl
same "backup workers"

# Rows of tables on servers, those that are saved too: of one worker, whose pushes have one order,
# and of workers that share each batch.
few=(--servers 1 --threads 1 --set data.count=1000 --set train.epochs=1)
for job in wide-and-deep deepfm; do
    alike "$source/examples/$job.yaml" -n 1 --sync asgd "${few[@]}"
    for f in run-cpu/checkpoints/tables/*; do
        cmp "$f" "run-far/checkpoints/tables/${f##*/}" || fail "$job: other rows"
    done
    [ -s "$f" ] || fail "$job: no rows were saved"
    alike "$source/examples/$job.yaml" -n 2 --sync sync "${few[@]}"
done

# What a trained model is used for, and going on with it.
job=$source/tests/dist/jobs/cnn.yaml
alike "$job" --set train.epochs=3
want=$(digest)
for b in cpu far; do
    run 0 "$tandem" eval run-$b --part valid --json --set train.backend=$b
    grep -o '"loss": [0-9.e+-]*' out >eval-$b || fail "no loss"
    run 0 "$tandem" predict run-$b -o pred-$b.csv --part valid --set train.backend=$b
done
cmp eval-cpu eval-far && cmp pred-cpu.csv pred-far.csv || fail "far predicts something else"
train far "$job" --set train.epochs=3 --set train.steps=4 --set checkpoint.every=2
run 0 "$tandem" train "$job" --resume --run-dir run-far --set train.backend=far \
    --set train.epochs=3 --set checkpoint.every=2
same "resumed on far"
grep -q '"device": "far", "device_requests": [1-9]' run-far/metrics.jsonl || fail "no counters"
grep -q 'of device far at most' run-far/report.html || fail "the report has no counters"

# The first bad number is found in memory that the host cannot read.
run 1 "$tandem" train "$job" --run-dir bad --set train.backend=far --set train.optimizer.lr=1e30
has 'NaN or Inf'
