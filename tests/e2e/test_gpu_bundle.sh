#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# The folder that `make gpu-bundle` makes, of this build, on an emulated GPU (tests/emulator/):
# test-gpu runs from it and finds nothing wrong, and finds what is wrong; bench-gpu begins nothing
# when its time is over, and says so. The long form has all parts of test-gpu but operators, golden
# and ranks, which take minutes there and have tests of their own.
. "$(dirname "$0")/lib.sh"

emulated=$build/tests/libemulated_cuda.so
for needed in "$emulated" "$build/tests/test_nccl" "$build/bench/bench_gpu"; do
    if [ ! -e "$needed" ]; then
        echo "skipped: this build has no CUDA, no tests, or no benchmarks"
        exit 77
    fi
done
export TANDEM_CUDA_DRIVER=$emulated TANDEM_CUDA_LIBS=none
export TANDEM_NCCL=$build/tests/libemulated_nccl.so OUT=$dir/logs
run 0 "$source/tools/gpu-bundle" "$build" "$dir/bundle"
has ' MiB; test-gpu, bench-gpu, tune-gpu and sanitize-gpu in it run where a GPU is'
parts=(resume)
[ -z "${TD_TEST_FULL:-}" ] || parts=(device shared devices nccl elastic resume)
for part in "${parts[@]}"; do
    run 0 bundle/test-gpu --only "$part"
    has "^$part  *ok "
    said WRONG && fail "$part: $(cat out)"
done
TANDEM_CUDA_DRIVER=none run 1 bundle/test-gpu --only resume
has '^resume  *WRONG '
TD_BENCH_SECONDS=1 run 3 bundle/bench-gpu --no-peer
has '^left out: gpt2, batch 64, any-bits: no time'
has '^left out: trainer, reproducible: no time'
said WRONG && fail "bench-gpu without time: $(cat out)"
true
