#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# One line each for what works but is probably not meant so, for ranks that do not agree, and for a
# loss that is not finite: what it is, where, and what to do.
. "$(dirname "$0")/lib.sh"
job() { # LAYERS TRAIN
    cat >"$mark" <<JOB
name: hints
model: [flatten, $1]
data: {source: digits, count: 100}
train: {steps: 2, eval: {every: never}, $2}
checkpoint: {every: end}
log: {tensorboard: false, report: false}
JOB
}
train() { # STATUS ARGUMENTS...
    local status=$1; shift
    rm -rf run
    run "$status" "$tandem" train "$mark" --run-dir run -q "$@"
}
once() { [ "$(grep -c -- "$1" out)" = 1 ] || fail "not once: $1"; }
processors=$(nproc)

job "linear" "batch: 20"
train 0
[ "$(wc -l <out)" = 1 ] || fail "a warning about nothing"
job "linear, softmax" "batch: 200"
train 0
once 'job.yaml:2:26: model: softmax1 is a softmax, which the loss cross_entropy applies itself'
once 'train.batch is 200, but there are 100 training samples: .*; lower train.batch'
run 0 "$tandem" check "$mark" -q
once 'softmax1 is a softmax'
job "{linear: 10, act: softmax}" "batch: 20"
for how in "-n 2" "-n 2 --elastic --lease 10s"; do
    # shellcheck disable=SC2086
    train 0 $how
    once 'model: linear1 is a softmax'
done
job linear "batch: 30, micro_batches: 2"
for how in "-n 3" "-n 3 --elastic --lease 10s"; do
    # shellcheck disable=SC2086
    train 0 $how
    once '1 of 3 ranks are idle: .* or set train.micro_batches to 3'
done
train 0 -n $((processors + 1))
said "ranks on a host with" && fail "-q has told of crowded ranks"
rm -rf run # without -q
run 0 "$tandem" train "$mark" --run-dir run -n $((processors + 1))
once "$((processors + 1)) ranks on a host with $processors processor"
job "{linear: 16}, linear" "batch: 20, optimizer: {lr: 1e30}"
sed -i 's/steps: 2/steps: 9/' "$mark"
train 1
has 'the loss is .* at step .*; lower the learning rate (train.optimizer.lr) or clip gradients'

# Ranks whose options would have them make other calls.
job linear "batch: 20"
pair() { # KEY VALUE OTHER
    rm -rf run
    run 2 "$tandem" launch -n 2 -- sh -c 'v=$3; [ $RANK = 0 ] || v=$4
exec "$1" train "$2" -q --run-dir run --set $v' - "$tandem" "$mark" "$1=$2" "$1=$3"
}
pair parallel.transport tcp shm
has 'has transport [a-z]*, algorithm auto, but rank [01] has transport [a-z]*, algorithm auto'
pair parallel.algo ring star
has 'algorithm [a-z]*, but rank [01] has transport auto, algorithm [a-z]*'
pair data.distribute none broadcast
has 'data.distribute is [a-z]*, but rank [01] has [a-z]*; start all ranks with the same job'

# Rank 1 comes once rank 0 has told that it waits.
rm -rf run
limited "$tandem" launch -n 2 --log-dir logs -- sh -c '[ $RANK = 0 ] ||
until grep -q "has waited" logs/rank-0.log; do sleep 0.05; done
exec "$1" train "$2" -q --run-dir run' - "$tandem" "$mark" >out 2>&1 || fail "status $?"
once 'rank 0 of 2 has waited 5 s for 1 rank: 1; it gives up in 2[0-9] s'
echo "test_hints: ok"
