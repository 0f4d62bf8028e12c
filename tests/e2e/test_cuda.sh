#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train.backend cuda: without a driver one line says so; on the emulated GPU (tests/emulator/) a job
# trains to one digest in one go and resumed, near the losses of cpu; auto is one
# of both; `tandem devices` names what is there.
. "$(dirname "$0")/lib.sh"

export TANDEM_CUDA_DRIVER=$dir/no-such-library.so
run 0 "$tandem" devices
has '^cpu '
has '^cuda  none: '
run 2 "$tandem" train "$source/examples/tabular.yaml" --run-dir never --set train.backend=cuda
has 'cuda'
emulated=$build/tests/libemulated_cuda.so
if [ ! -e "$emulated" ]; then
    has 'this build has none'
    echo "skipped: this build has no CUDA, so there is no emulated GPU"
    exit 77
fi
has 'no CUDA driver on this machine'

export TANDEM_CUDA_DRIVER=$emulated TANDEM_CUDA_LIBS=none
run 0 "$tandem" devices
has '^cpu .* GiB, '
has '^cuda  libraries: cuBLASLt missing .*, cuDNN '
has '^cuda  GPU 0: emulated GPU, compute capability 9.0, 2 multiprocessors'
EMULATED_GPUS=3 CUDA_VISIBLE_DEVICES=2,0 run 0 "$tandem" devices
has '^cuda  GPU 1: emulated GPU'
[ "$(grep -c '^cuda  GPU' out)" = 2 ] || fail "CUDA_VISIBLE_DEVICES names 2 of 3 GPUs"
run 0 "$tandem" check "$source/examples/tabular.yaml" --set train.backend=cuda
has "of the GPU's memory: .* of 8.59 GB (emulated GPU)"
# Of the GPU: gradients of micro-batches and of ranks too, times the ranks that share it.
check() { run 0 "$tandem" check "$source/tests/dist/jobs/cnn.yaml" --set train.backend=cuda "$@"; }
check
alone=$(sed -n "s/.*of the GPU's memory: \([0-9.]*\) kB of.*/\1/p" out)
check -n 2
two=$(sed -n "s/.*of the GPU's memory by 2 ranks: \([0-9.]*\) kB of.*/\1/p" out)
awk "BEGIN { exit !($two > 2 * $alone) }" || fail "two ranks need $two kB of a GPU, one $alone"
EMULATED_MEMORY=$(awk "BEGIN { print int(1000 * ($alone + $two) / 2) }")
export EMULATED_MEMORY
check
said 'too much' && fail "one rank has room enough"
check -n 2
has "of the GPU's memory by 2 ranks: .*: too much; use a smaller batch or more micro-batches"
EMULATED_GPUS=2 check -n 2
said 'too much' && fail "two ranks have a GPU each"
EMULATED_GPUS=2 check --set parallel.strategy=mirrored
has 'memory of a rank, of 2 on this host'
unset EMULATED_MEMORY
train() {
    local backend=$1
    shift
    rm -rf "run-$backend"
    run 0 "$tandem" train "$job" --run-dir "run-$backend" --set train.backend="$backend" \
        --set log.report=false --set log.tensorboard=false "$@"
}
# close_losses A B: within 1e-4 of each other, step by step
close_losses() {
    python3 - "$1" "$2" <<'PY' || fail "the losses of $1 and $2 differ"
import json, sys
def losses(run):
    rows = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    return [r["loss"] for r in rows if "loss" in r and "step" in r]
a, b = losses(sys.argv[1]), losses(sys.argv[2])
assert len(a) == len(b) > 0, (len(a), len(b))
assert all(abs(x - y) <= 1e-4 * abs(x) for x, y in zip(a, b)), (a, b)
PY
}
job=$source/examples/tabular.yaml
train cpu --set train.epochs=1
want=$(digest) on_cpu=$want
TANDEM_CUDA_DRIVER=$dir/no-such-library.so train auto --set train.epochs=1
same "auto without a GPU"
train cuda --set train.epochs=1
close_losses run-cpu run-cuda
want=$(digest)
train auto --set train.epochs=1 --profile
same "auto with a GPU"
for name in 'GPU stream 0' 'copy to the GPU 0' 'kernels 0' 'copy back 0'; do
    grep -q "\"name\": \"$name\"" run-auto/trace.json || fail "the trace has no '$name'"
done
# A GPU that cannot run the kernels of the build is left alone.
export EMULATED_CAPABILITY=7.5
run 0 "$tandem" devices
has '^cuda  GPU 0 cannot be used: .* has compute capability 7\.5; the kernels .* 8\.0 and later'
run 2 "$tandem" train "$job" --run-dir never --set train.backend=cuda
has 'has compute capability 7\.5'
want=$on_cpu
train auto --set train.epochs=1
same "auto with a GPU that is too old"
has 'train.backend auto is cpu: .*compute capability 7\.5'
unset EMULATED_CAPABILITY
job=$source/tests/dist/jobs/gpt.yaml # operators that are joined for this backend
train cpu --set train.steps=4
train cuda --set train.steps=4
close_losses run-cpu run-cuda
job=$source/tests/dist/jobs/cnn.yaml
train cuda --set train.epochs=3
want=$(digest)
train cuda --set train.epochs=3 --set train.steps=4 --set checkpoint.every=2
run 0 "$tandem" train "$job" --resume --run-dir run-cuda --set train.backend=cuda \
    --set train.epochs=3 --set checkpoint.every=2
same "resumed"
grep -q '"gpu": *"emulated GPU, driver for CUDA [0-9.]*"' run-cuda/checkpoints/*/state.json ||
    fail "checkpoints do not name the GPU"
# Bits belong to the kind of GPU, its driver and its libraries.
EMULATED_GPU='another GPU' run 2 "$tandem" train "$job" --resume --run-dir run-cuda \
    --set train.backend=cuda --set train.epochs=4
has 'was computed on emulated GPU, driver .*, and this run has another GPU, driver .*, which'
EMULATED_GPU='another GPU' run 0 "$tandem" train "$job" --resume --run-dir run-cuda \
    --set train.backend=cuda --set train.epochs=4 --set checkpoint.any_gpu=true
has 'was computed on emulated GPU, driver .* continues with another GPU, driver .*: results'
