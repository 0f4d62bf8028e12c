#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Elastic ranks on two emulated GPUs (tests/emulator/) with a spare process: whichever processes
# become ranks have a GPU each, also after one of them was killed; a spare opens none, and goes when
# it is asked to.
. "$(dirname "$0")/lib.sh"

emulated=$build/tests/libemulated_cuda.so
if [ ! -e "$emulated" ]; then
    echo "skipped: this build has no CUDA, so there is no emulated GPU"
    exit 77
fi
export TANDEM_CUDA_DRIVER=$emulated TANDEM_CUDA_LIBS=none EMULATED_GPUS=2
export TANDEM_LOG=train=debug,backend=debug
job=$source/tests/dist/jobs/cnn.yaml
train() {
    rm -rf run
    run 0 "$tandem" train "$job" --run-dir run --set train.backend=cuda --set train.steps=4 \
        --set train.micro_batches=8 --set log.report=false --set log.tensorboard=false "$@"
}
opened() { grep -o 'device cuda:[01]: emulated GPU' out | sort | uniq -c | tr -s ' \n' ' '; }

train
want=$(digest)
for rank in 0 1; do
    train -n 2 --elastic --spares 1 --faults "kill rank=$rank at=step:2"
    same "rank $rank was killed beside a spare"
    # Of two ranks and the one that came for the third, each GPU has one at a time: the GPU of the
    # killed one was opened twice, the other once.
    case $(opened) in
    *'1 device cuda:0'*'2 device cuda:1'* | *'2 device cuda:0'*'1 device cuda:1'*) ;;
    *) fail "rank $rank was killed: GPUs were opened so:$(opened)" ;;
    esac
done
train -n 2 --elastic --spares 1
same "a spare that is not needed"
case $(opened) in
*'1 device cuda:0'*'1 device cuda:1'*) ;;
*) fail "a spare that is not needed: GPUs were opened so:$(opened)" ;;
esac
