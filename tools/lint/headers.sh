#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone as C11; the public ones also as C++17.
set -euo pipefail
cd "$(dirname "$0")/../.."
warnings="-Wall -Wextra -Wpedantic -Wundef -Werror"
c="gcc -std=c11 -D_GNU_SOURCE -DTD_ISA=scalar -DTD_ISA_scalar=1 -fsyntax-only $warnings"
c="$c -Wconversion -Iinclude -Isrc -Itests -Icmd/tandem -x c"
cxx="g++ -std=c++17 -fsyntax-only $warnings -Iinclude -x c++"
# Through a one-line file: a header as the main file would be treated specially.
{
    git -c safe.directory='*' ls-files -co --exclude-standard '*.h' | sed "s|^|$c |"
    git -c safe.directory='*' ls-files -co --exclude-standard 'include/*.h' | sed "s|^|$cxx |"
} | xargs -d '\n' -P "$(nproc)" -I{} bash -c \
    'cmd="{}"; h=${cmd##* }; echo "#include \"$PWD/$h\"" | ${cmd% *} - ||
        { echo "$h: does not compile alone (${cmd%% *})"; exit 1; }'
