#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Several ranks with train.backend cuda, on emulated GPUs (tests/emulator/). On one GPU gradients,
# shards and activations go through its memory; on two GPUs, one for each rank, too, or through the
# host where no GPU reaches the other's memory; the digest is that of one rank. Processors and GPUs
# share a job where bits do not matter.
. "$(dirname "$0")/lib.sh"

emulated=$build/tests/libemulated_cuda.so
if [ ! -e "$emulated" ]; then
    echo "skipped: this build has no CUDA, so there is no emulated GPU"
    exit 77
fi
export TANDEM_CUDA_DRIVER=$emulated TANDEM_CUDA_LIBS=none TANDEM_LOG=train=debug,backend=debug
job=$source/tests/dist/jobs/cnn.yaml
train() {
    rm -rf run
    run 0 "$tandem" train "$job" --run-dir run --set train.backend=cuda --set train.steps=3 \
        --set train.micro_batches=8 --set log.report=false --set log.tensorboard=false "$@"
}
on_gpus() { has "$1 of $2 ranks go through the memory of their GPUs"; }

train
want=$(digest)
for n in 2 3; do
    train -n $n
    same "$n ranks"
    on_gpus gradients $n
done
for zero in '1 2' '2 3' '3 2'; do
    train -n "${zero#* }" --set parallel.zero="${zero% *}"
    same "parallel.zero ${zero% *} on ${zero#* } ranks"
    on_gpus shards "${zero#* }"
done
train -n 4 --set parallel.pipeline=2
same "2 stages, 2 replicas"
on_gpus activations 2
on_gpus gradients 2
train -n 2 --set parallel.pipeline=2 --set parallel.schedule=zb-h1
same "2 stages, zb-h1"
on_gpus activations 2

# On two GPUs that reach each other's memory, and on two that do not.
export EMULATED_GPUS=2
two() { # KEY=VALUE WHAT
    train -n 2 --set "$1"
    same "two GPUs, $1"
    has 'device cuda:1: emulated GPU'
    on_gpus "$2" 2
}
two train.epochs=100 gradients
two parallel.zero=1 shards
two parallel.pipeline=2 activations
export EMULATED_APART=1
for how in train.epochs=100 parallel.zero=1 parallel.pipeline=2; do
    train -n 2 --set $how
    same "two GPUs apart, $how"
    has 'device cuda:1: emulated GPU'
    has 'the GPU is not shared: device cuda: the GPU does not reach the memory of GPU [01]'
    if said 'go through the memory of their GPUs'; then
        fail "two GPUs apart share memory with $how"
    fi
done
unset EMULATED_APART
unset EMULATED_GPUS TANDEM_LOG

# Rank 0 has a GPU, rank 1 has none.
export EMULATED_RANK=0
job=$source/examples/tabular.yaml
mixed() { "$tandem" train "$job" -n 2 --run-dir "$@" --set train.backend=auto --set train.steps=4; }
mixed never >out 2>&1 && fail "processors and GPUs share a reproducible job"
has 'train.backend is cpu, but rank 0 has cuda; processors and GPUs share a job with'
mixed never-either --set train.reproducible=false --set parallel.zero=1 >out 2>&1 &&
    fail "processors and GPUs share a job with parallel.zero"
has 'some ranks have a GPU and some have not'
mixed run-mixed --set train.reproducible=false >out 2>&1 || fail "a mixed job fails"
has '^digest sha256:'
