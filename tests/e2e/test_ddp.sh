#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch's DDP example runs unchanged under `tandem launch`. Needs PyTorch: TD_TORCH_PYTHON, or the
# environment that `make bench-torch` makes, or python3 if it has torch; skipped without.
set -uo pipefail
build=$(realpath "${TD_BUILD:-build}")
source=${TD_SOURCE:-$PWD}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "test_ddp: $*" >&2; cat "$dir/out" >&2; exit 1; }

python=
for p in "${TD_TORCH_PYTHON:-}" "$build/venv-torch/bin/python" python3; do
    if [ -n "$p" ] && "$p" -c 'import torch.distributed' 2>/dev/null; then
        python=$p
        break
    fi
done
if [ -z "$python" ]; then
    echo "test_ddp: no PyTorch here (make bench-torch installs one): skipped"
    exit 77
fi
timeout 120 "$build/tandem" launch -n 3 --env OMP_NUM_THREADS=1 -- \
    "$python" "$source/tests/e2e/ddp_example.py" >"$dir/out" 2>&1 || fail "the example failed"
[ "$(grep -c '^\[[0-2]\] parameters' "$dir/out")" = 3 ] || fail "not all ranks trained"
[ "$(sed -n 's/.*parameters //p' "$dir/out" | sort -u | wc -l)" = 1 ] || fail "ranks differ"
echo "test_ddp: good"
