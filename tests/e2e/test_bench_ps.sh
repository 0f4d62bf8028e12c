#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The benchmark of the parameter server runs to its end at small sizes: both programs push, pull and
# check what comes back, over both transports, and every line says whether its bar is reached.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "python3 is not there" >&2; exit 77; }

run 0 "$source/bench/ps/run" "$build" --quick --no-stragglers --no-take-over --json rows.json \
    --rounds 3
for bar in shm:10 tcp:3; do
    what="${bar%:*} .* bar ${bar#*:} x: \(reached\|MISSED\)"
    has "^64 MB in 4 KB keys *$what"
    has "^156 of 15625 x 16 *$what"
done
has '^64 MB, a step of training  *tcp .*: push and pull '
has '^156 of 15625 x 16, 2+2 copies *tcp .* M rows/s'
has '^asgd  .*/s .*/s .* %$'
has 'all bars hold\|bars do not hold'
[ "$(grep -c '"name"' rows.json)" = 25 ] || fail "$(grep -c '"name"' rows.json) rows"
# A batch that has every id; and more ids than there are.
run 0 "$tandem" launch -n 2 "$build/bench/ps_rows" shm 8 4 8 20
run 2 "$build/bench/ps_rows" shm 8 4 9 20
run 2 "$build/bench/ps_rows" shm 8 4 8 20 0
run 2 "$source/bench/ps/run" "$build" --quick --unknown
run 1 "$source/bench/ps/run" "$build" --quick --ps-lite "$PWD"
has 'bench-ps: --ps-lite: no C++ compiler, or no .*/build/libps.a: run make ps DEPS_PATH=/usr there'
run 2 "$build/bench/ps_lanes" shm 0 4096 20
