#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone as C11, those of the emulated GPU as C++17; the public ones as both.
# tandem.h includes all public ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: tools/lint/headers.sh BUILD} # has headers made from .proto files
warnings="-Wall -Wextra -Wpedantic -Wundef -Werror"
c="gcc -std=c11 -D_GNU_SOURCE -DTD_ISA=scalar -DTD_ISA_scalar=1 -fsyntax-only $warnings"
c="$c -DTD_CUDA=1 -DTD_CUDNN=0 -DTD_HAVE_SERVICE=1 -Wconversion"
c="$c -Iinclude -Isrc -Itests -Icmd/tandem -I$build/generated -x c"
cxx="g++ -std=c++17 -fsyntax-only $warnings -Iinclude -x c++"
bad=0
for h in include/tandem/*.h; do
    h=${h#include/}
    [ "$h" = tandem/tandem.h ] || grep -qxF "#include \"$h\"" include/tandem/tandem.h ||
        { echo "include/$h: tandem/tandem.h does not include it"; bad=1; }
done
# Through a one-line file: a header as the main file would be treated specially.
{
    git -c safe.directory='*' ls-files -co --exclude-standard '*.h' ':!tests/emulator/' |
        sed "s|^|$c |"
    git -c safe.directory='*' ls-files -co --exclude-standard 'include/*.h' 'tests/emulator/*.h' |
        sed "s|^|$cxx |"
} | xargs -d '\n' -P "$(nproc)" -I{} bash -c \
    'cmd="{}"; h=${cmd##* }; echo "#include \"$PWD/$h\"" | ${cmd% *} - ||
        { echo "$h: does not compile alone (${cmd%% *})"; exit 1; }'
exit $bad
