#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's programs compile against the public headers, its job is right, and the commands,
# verbs and tests it names exist.
. "$(dirname "$0")/lib.sh"
readme=$source/README.md
fenced() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$readme" | sed '/^```/d'; } # LANGUAGE
# Its C, block by block: a program compiles, is linked and runs; statements compile in a program.
awk '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print >("block" n ".c") }' "$readme"
[ -s block1.c ] && [ -s block2.c ] || fail "no programs found in README.md"
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
for command in $(grep -o '`tandem [a-z-]*' "$readme" | cut -d' ' -f2 | sort -u); do
    run 0 "$tandem" help "$command"
done
for verb in $(grep -oE '(^|`)make [a-z][a-z-]*' "$readme" | cut -d' ' -f2 | sort -u); do
    grep -q "^$verb:" "$source/Makefile" || fail "README: no such verb: make $verb"
done
# (`ctest -N` would write into the folder of the ctest that runs this)
tests=$(grep -o '^add_test([^ ]*' "$build/CTestTestfile.cmake")
for name in $(grep -o 'ctest [^`]*-R [a-z0-9_]*' "$readme" | sed 's/.*-R //'); do
    grep -q "$name" <<<"$tests" || fail "README: no such test: $name"
done
