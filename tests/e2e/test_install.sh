#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a temporary folder and uses the result as a user would: C and C++ programs, found
# through pkg-config and through CMake, with the shared and the static library. The installed tree
# is moved before use, which must not matter.
. "$(dirname "$0")/lib.sh"
here=$source/tests/e2e/consumer
unset DESTDIR

run 0 cmake --install "$build" --prefix "$dir/first"
mv first moved
libdir=$(dirname "$(find "$dir/moved" -name libtandem.a)")
for f in libtandem.so libtandem.a pkgconfig/tandem.pc cmake/Tandem/TandemConfig.cmake; do
    [ -e "$libdir/$f" ] || fail "$f was not installed"
done
for f in bin/tandem share/man/man1/tandem.1 share/bash-completion/completions/tandem \
    share/zsh/site-functions/_tandem share/fish/vendor_completions.d/tandem.fish; do
    [ -s "moved/$f" ] || fail "$f was not installed"
done
run 0 moved/bin/tandem version
headers() { (cd "$1" && find . -name '*.h' | sort); }
diff <(headers "$source/include") <(headers moved/include) ||
    fail "installed headers differ from include/"

export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
read -ra cflags <<<"$(pkg-config --cflags tandem)"
read -ra libs <<<"$(pkg-config --libs tandem)"
read -ra private <<<"$(pkg-config --static --libs tandem | sed 's/-ltandem\b//')"
strict=(-Wall -Wextra -Wpedantic -Werror)
run 0 cc -std=c11 "${strict[@]}" "${cflags[@]}" "$here/consumer.c" "${libs[@]}" -o c_shared
run 0 cc -std=c11 "${strict[@]}" "${cflags[@]}" "$here/consumer.c" "$libdir/libtandem.a" \
    "${private[@]}" -o c_static
run 0 c++ -std=c++17 "${strict[@]}" "${cflags[@]}" "$here/consumer.cc" "${libs[@]}" -o cxx_shared
run 0 c++ -std=c++17 "${strict[@]}" "${cflags[@]}" "$here/train.cc" "${libs[@]}" -o cxx_train
for p in c_shared c_static cxx_shared cxx_train; do
    run 0 "./$p"
done
run 0 ldd c_static
! grep -q libtandem out || fail "c_static is linked with the shared library"

unset PKG_CONFIG_PATH LD_LIBRARY_PATH
run 0 cmake -S "$here" -B cmake -G Ninja -DCMAKE_PREFIX_PATH="$dir/moved"
run 0 ninja -C cmake
for p in c_shared c_static cxx_shared cxx_train; do
    run 0 "cmake/$p"
done
