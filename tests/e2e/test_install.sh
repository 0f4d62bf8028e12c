#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a temporary folder and uses the result as a user would: C and C++ programs, found
# through pkg-config and through CMake, with the shared and the static library. The installed tree
# is moved before use, which must not matter.
set -euo pipefail
build=${TD_BUILD:-build}
source=${TD_SOURCE:-$PWD}
here=$source/tests/e2e/consumer
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() { echo "test_install: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$dir/first" >"$dir/log" || { cat "$dir/log"; fail "install"; }
mv "$dir/first" "$dir/moved"
libdir=$(dirname "$(find "$dir/moved" -name libtandem.a)")
for f in libtandem.so libtandem.a pkgconfig/tandem.pc cmake/Tandem/TandemConfig.cmake; do
    [ -e "$libdir/$f" ] || fail "$f was not installed"
done
for f in bin/tandem share/man/man1/tandem.1 share/bash-completion/completions/tandem \
    share/zsh/site-functions/_tandem share/fish/vendor_completions.d/tandem.fish; do
    [ -s "$dir/moved/$f" ] || fail "$f was not installed"
done
"$dir/moved/bin/tandem" version >/dev/null || fail "the installed program does not run"
diff <(cd "$source/include" && find tandem -name '*.h' | sort) \
    <(cd "$dir/moved/include" && find . -name '*.h' | sed 's|^\./||' | sort) ||
    fail "installed headers differ from include/"

export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
read -ra cflags <<<"$(pkg-config --cflags tandem)"
read -ra libs <<<"$(pkg-config --libs tandem)"
read -ra private <<<"$(pkg-config --static --libs tandem | sed 's/-ltandem\b//')"
strict=(-Wall -Wextra -Wpedantic -Werror)
cc -std=c11 "${strict[@]}" "${cflags[@]}" "$here/consumer.c" "${libs[@]}" -o "$dir/c_shared"
cc -std=c11 "${strict[@]}" "${cflags[@]}" "$here/consumer.c" "$libdir/libtandem.a" "${private[@]}" \
    -o "$dir/c_static"
c++ -std=c++17 "${strict[@]}" "${cflags[@]}" "$here/consumer.cc" "${libs[@]}" -o "$dir/cxx_shared"
for p in c_shared c_static cxx_shared; do
    "$dir/$p" || fail "$p (pkg-config) failed"
done
! ldd "$dir/c_static" | grep -q libtandem || fail "c_static is linked with the shared library"

unset PKG_CONFIG_PATH LD_LIBRARY_PATH
cmake -S "$here" -B "$dir/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$dir/moved" >"$dir/log" 2>&1 &&
    ninja -C "$dir/cmake" >>"$dir/log" 2>&1 || { cat "$dir/log"; fail "CMake consumer"; }
for p in c_shared c_static cxx_shared; do
    "$dir/cmake/$p" || fail "$p (CMake) failed"
done
echo "test_install: good"
