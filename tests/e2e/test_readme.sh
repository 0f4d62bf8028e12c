#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's program compiles against the public headers, its job is right, and the commands,
# verbs and tests it names exist.
set -euo pipefail
source=${TD_SOURCE:-$PWD}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$dir/body"
{
    grep '^#include' "$dir/body"
    echo 'int main(void) {'
    grep -v '^#include' "$dir/body"
    echo 'return 0; }'
} >"$dir/readme.c"
[ "$(wc -l <"$dir/body")" -gt 10 ] || { echo "no program found in README.md" >&2; exit 1; }
cc -std=c11 -Wall -Wextra -Werror -Wno-unused-result -Wno-unused-but-set-variable -fsyntax-only \
    -I"$source/include" "$dir/readme.c"

tandem=$(realpath "${TD_BUILD:-build}")/tandem
sed -n '/^```yaml$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$dir/job.yaml"
(cd "$dir" && "$tandem" check -q job.yaml)
for command in $(grep -o '`tandem [a-z]*' "$source/README.md" | cut -d' ' -f2 | sort -u); do
    "$tandem" help "$command" >/dev/null
done
for verb in $(grep -o '\bmake [a-z][a-z-]*' "$source/README.md" | cut -d' ' -f2 | sort -u); do
    grep -q "^$verb:" "$source/Makefile" || { echo "README: no such verb: make $verb" >&2; exit 1; }
done
tests=$(ctest --test-dir "${TD_BUILD:-build}" -N)
for name in $(grep -o 'ctest [^`]*-R [a-z0-9_]*' "$source/README.md" | sed 's/.*-R //'); do
    grep -q "$name" <<<"$tests" || { echo "README: no such test: $name" >&2; exit 1; }
done
