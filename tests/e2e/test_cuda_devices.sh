#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# One process drives several GPUs, on emulated ones (tests/emulator/): mirrored, ZeRO and pipelines
# with ranks that are threads, layers placed on GPUs, and one GPU that counts as two. The digest is
# that of one GPU. What cannot be is one line and status 2.
. "$(dirname "$0")/lib.sh"

emulated=$build/tests/libemulated_cuda.so
if [ ! -e "$emulated" ]; then
    echo "skipped: this build has no CUDA, so there is no emulated GPU"
    exit 77
fi
export TANDEM_CUDA_DRIVER=$emulated TANDEM_CUDA_LIBS=none TANDEM_LOG=train=debug,backend=debug
job=$source/tests/dist/jobs/cnn.yaml
common=(--set train.micro_batches=8 --set log.report=false --set log.tensorboard=false)
train() {
    rm -rf run
    run 0 "$tandem" train "$job" --run-dir run --set train.backend=cuda --set train.steps=3 \
        "${common[@]}" "$@"
}
refused() { # TEXT ARGUMENT...
    local text=$1
    shift
    run 2 "$tandem" train "$job" --run-dir never "${common[@]}" "$@"
    has "$text"
    [ "$(grep -c '^tandem' out)" = 1 ] || fail "not one line says why"
    [ ! -e never ] || fail "a run that was refused has a directory"
}

train --strategy mirrored # one GPU: as ever
want=$(digest)
said 'on . ranks' && fail 'several ranks on one GPU'

export EMULATED_GPUS=3
train --strategy mirrored
same "mirrored on three GPUs"
has 'on 3 ranks (inproc)'
has 'device cuda:2: emulated GPU'
has 'gradients of 3 ranks go through the memory of their GPUs'
CUDA_VISIBLE_DEVICES=2,0 train --strategy mirrored
same "mirrored on two of three GPUs"
has 'on 2 ranks (inproc)'
train --strategy mirrored -n 2
same "mirrored on ranks of two processes"
has 'on 2 ranks (shm)'
train --set parallel.devices=2 --set parallel.zero=2
same "parallel.zero 2 in one process"
has 'shards of 2 ranks go through the memory of their GPUs'
train --set parallel.devices=3 --set parallel.pipeline=3
same "3 stages in one process"
has 'activations of 3 ranks go through the memory of their GPUs'
EMULATED_APART=1 train --strategy mirrored
same "GPUs that do not reach each other"
said 'go through the memory of their GPUs' && fail "GPUs apart share memory"
EMULATED_GPUS=1 TANDEM_CUDA_SPLIT=2 train --strategy mirrored --profile
same "one GPU that counts as two"
has 'on 2 ranks (inproc)'
has 'gradients of 2 ranks go through the memory of their GPUs'
for name in 'kernels 0' 'kernels 1'; do
    grep -q "\"name\": \"$name\"" run/trace.json || fail "the trace has no '$name'"
done

# A run goes on with another number of GPUs.
train --strategy mirrored --set checkpoint.every=2 --set train.steps=2
run 0 "$tandem" train "$job" --resume --run-dir run --set train.backend=cuda --set train.steps=3 \
    --set checkpoint.every=2 "${common[@]}"
same "resumed on one of three GPUs"

# Layers placed by hand.
sed 's/- dropout: 0.25/- {dropout: 0.25, place: "cuda:1"}/' "$job" >placed.yaml
grep -q 'cuda:1' placed.yaml || fail "no layer of $job is placed"
job=$dir/placed.yaml
rm -rf run
run 0 "$tandem" train "$job" --run-dir run --set train.steps=3 "${common[@]}"
same "place: cuda:1"
has 'on 2 ranks (inproc)'
has 'activations of 2 ranks go through the memory of their GPUs'
refused 'place: cuda:1 is a GPU, and train.backend is cpu' --set train.backend=cpu
refused 'parallel.devices: 2: the job runs on 4 ranks' -n 4 --set parallel.data=2
export EMULATED_GPUS=1
refused 'parallel.devices: 2: this process sees 1 GPU '
job=$source/tests/dist/jobs/cnn.yaml
refused 'parallel.devices: 2: backend cpu uses no GPU' --set parallel.devices=2
