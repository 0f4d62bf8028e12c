#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's program compiles against the public headers, its job is right, and the commands,
# verbs and tests it names exist.
. "$(dirname "$0")/lib.sh"
readme=$source/README.md
fenced() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$readme" | sed '/^```/d'; } # LANGUAGE
fenced c >body
{
    grep '^#include' body
    echo 'int main(void) {'
    grep -v '^#include' body
    echo 'return 0; }'
} >readme.c
[ "$(wc -l <body)" -gt 10 ] || fail "no program found in README.md"
run 0 cc -std=c11 -Wall -Wextra -Werror -Wno-unused-result -Wno-unused-but-set-variable \
    -fsyntax-only -I"$source/include" readme.c

fenced yaml >job.yaml
run 0 "$tandem" check -q job.yaml
for command in $(grep -o '`tandem [a-z]*' "$readme" | cut -d' ' -f2 | sort -u); do
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
