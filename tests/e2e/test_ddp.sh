#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# PyTorch's DDP example runs unchanged under `tandem launch`, and a Tandem program under torchrun,
# also when torchrun starts it a second time. Needs PyTorch: TD_TORCH_PYTHON, or the
# environment that `make bench-torch` makes, or python3 if it has torch; skipped without.
. "$(dirname "$0")/lib.sh"

if ! find_torch; then
    echo "test_ddp: no PyTorch here (make bench-torch installs one): skipped"
    exit 77
fi
export OMP_NUM_THREADS=1
run 0 "$tandem" launch -n 3 -- "$python" "$source/tests/e2e/ddp_example.py"
[ "$(grep -c '^\[[0-2]\] parameters' out)" = 3 ] || fail "not all ranks trained"
[ "$(sed -n 's/.*parameters //p' out | sort -u | wc -l)" = 1 ] || fail "ranks differ"

# torchrun RANKS ARGUMENTS...: output in ./out; its store is on a port that is free
torchrun() { run 0 "$python" -m torch.distributed.run --standalone --nproc-per-node "$@"; }
world=$build/tests/prog_world
torchrun 3 --no-python "$world" all ring
[ "$(grep -c 'good over shm' out)" = 3 ] || fail "ranks did not meet under torchrun"
torchrun 3 --max-restarts 1 --monitor-interval 0.1 --no-python sh -c \
    '[ "$TORCHELASTIC_RESTART_COUNT$RANK" = 01 ] && exit 1; exec "$0" join' "$world"
[ "$(grep -c 'of 3 over shm' out)" = 3 ] || fail "ranks did not meet after a restart"
