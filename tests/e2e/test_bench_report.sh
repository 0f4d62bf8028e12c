#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Benchmarks report as promised: two programs run by bench/run give one JSON array, ratios point the
# right way, a row without a peer has nulls, and a file that is not an array is left alone.
. "$(dirname "$0")/lib.sh"
mkdir bench
row() { # program, then the arguments of bench_row
    printf '#include "bench_report.h"\nint main(int c, char **v)\n{\n' >"$1.c"
    printf '    bench_begin(c, v);\n' >>"$1.c"
    printf '    bench_row(%s);\n    return bench_end();\n}\n' "$2" >>"$1.c"
    # shellcheck disable=SC2046
    run 0 cc -D_GNU_SOURCE -I"$source/bench" "$1.c" "$source/bench/bench_report.c" \
        $(pkg-config --cflags --libs jansson) -o "bench/$1"
}
row bench_a '"speed \"a\"", 6, 2, "x/s", true'
row bench_b '"time b", 6, 2, "ms", false'
row bench_c '"alone c", 5, 0, "ms", false'

echo '[{"name": "old"}]' >out.json # bench/run starts anew
run 0 "$source/bench/run" "$dir" --json out.json
has 'speed "a" .* 3.00 x/s'
python3 - out.json <<'END' || fail "the rows"
import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["name"] for r in rows] == ['speed "a"', "time b", "alone c"], rows
assert all(set(r) == {"name", "ours", "peer", "ratio", "unit"} for r in rows), rows
assert abs(rows[0]["ratio"] - 3) < 1e-5 and abs(rows[1]["ratio"] - 1 / 3) < 1e-5, rows
assert rows[2]["peer"] is None and rows[2]["ratio"] is None, rows
END
echo 'precious' >not.json
run 1 bench/bench_a --json not.json
grep -qx precious not.json || fail "a file that is no array was overwritten"
