#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program starts with few libraries; the others come when they are first called, and one that
# cannot be had is said in a line.
. "$(dirname "$0")/lib.sh"
[ -s "$build/tandem.libraries" ] || { echo "skipped: all libraries come at the start"; exit 77; }

ldd "$tandem" >out || fail "ldd"
while read -r library; do
    [ -e "$library" ] || fail "$library is listed, and is not there"
    grep -qF "$(basename "$library")" out && fail "$library is loaded at the start"
done <"$build/tandem.libraries"
[ "$(wc -l <out)" -le 12 ] || fail "more libraries at the start than there were"

mkdir broken
: >broken/libcurl.so.4
LD_LIBRARY_PATH=$dir/broken "$tandem" version >out 2>&1 || fail "it is not needed for this"
if "$tandem" help jobs >/dev/null 2>&1; then
    LD_LIBRARY_PATH=$dir/broken "$tandem" jobs -s http://127.0.0.1:1 >out 2>&1
    [ $? = 2 ] && [ "$(wc -l <out)" = 1 ] || fail "a library that cannot be loaded"
    grep -q '^tandem: libcurl.so.4 is needed for this, and cannot be loaded: ' out || fail "why"
fi
