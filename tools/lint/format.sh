#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The C, C++ and CUDA files are as .clang-format says; `make format` makes them so.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=$(git -c safe.directory='*' ls-files -co --exclude-standard -z \
        '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' |
    xargs -0 clang-format --dry-run 2>&1 |
    sed -n 's/^\([^:]*\):\([0-9]*\):.*clang-format-violations.*/\1:\2/p' | sort -u -t: -k1,1)
[ -z "$bad" ] || { echo "$bad" | sed 's/$/: not formatted (make format)/'; exit 1; }
