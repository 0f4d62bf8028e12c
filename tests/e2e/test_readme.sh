#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The programs of the README and of docs/api.md compile against the public headers, the README's job
# is right, and the commands, verbs and tests that it and docs/promises.md name exist.
. "$(dirname "$0")/lib.sh"
readme=$source/README.md
api=$source/docs/api.md
promises=$source/docs/promises.md
fenced() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$readme" | sed '/^```/d'; } # LANGUAGE
# Its C, block by block: a program compiles, is linked and runs; statements compile in a program.
awk '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print >("block" n ".c") }' \
    "$readme" "$api"
grep -q '^int main' block1.c && [ -s block2.c ] || fail "no programs found"
strict=(-std=c11 -Wall -Wextra -Werror -Wno-unused-result -Wno-unused-but-set-variable
    -I"$source/include")
for block in block*.c; do
    if grep -q '^int main' "$block"; then
        run 0 cc "${strict[@]}" "$block" -L"$build" -ltandem -o program
        LD_LIBRARY_PATH=$build run 0 ./program
        [ -s model.safetensors ] || fail "$block has saved nothing"
        continue
    fi
    {
        grep '^#include' "$block"
        echo 'int main(void) {'
        grep -v '^#include' "$block"
        echo 'return 0; }'
    } >statements.c
    run 0 cc "${strict[@]}" -fsyntax-only statements.c
done

fenced yaml >job.yaml
run 0 "$tandem" check -q job.yaml
named() { grep -ohE "(^|\`)$1 [a-z-]+" "$readme" "$promises" | cut -d' ' -f2 | sort -u; } # PROGRAM
for command in $(named tandem); do
    run 0 "$tandem" help "$command"
done
for verb in $(named make); do
    grep -q "^$verb:" "$source/Makefile" || fail "no such verb: make $verb"
done
# (`ctest -N` would write into the folder of the ctest that runs this)
tests=$(grep -o '^add_test([^ ]*' "$build/CTestTestfile.cmake")
names=$(grep -oE 'ctest [^`]*-V?R [a-z0-9_]+' "$promises" | sed 's/.*R //')
[ "$(wc -w <<<"$names")" -ge 30 ] || fail "docs/promises.md: only these tests: $names"
for name in $names; do
    grep -q "$name" <<<"$tests" || fail "docs/promises.md: no such test: $name"
done
# A row that no command checks is no promise.
grep '^| ' "$promises" | grep -v '^| promise |\|^| what is measured |' >rows
! grep -v '| `\(ctest\|make\) [^|]*|$' rows >out || fail "docs/promises.md: rows without a command"
