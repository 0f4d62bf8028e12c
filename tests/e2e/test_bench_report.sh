#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Benchmarks report as promised: two programs run by bench/run give one JSON array, ratios point the
# right way, a row without a peer has nulls, and a file that is not an array is left alone.
set -euo pipefail
source=${TD_SOURCE:-$PWD}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bench"
row() { # program, then the arguments of bench_row
    printf '#include "bench_report.h"\nint main(int c, char **v)\n{\n    bench_begin(c, v);\n' \
        >"$dir/$1.c"
    printf '    bench_row(%s);\n    return bench_end();\n}\n' "$2" >>"$dir/$1.c"
    # shellcheck disable=SC2046
    cc -D_GNU_SOURCE -I"$source/bench" "$dir/$1.c" "$source/bench/bench_report.c" \
        $(pkg-config --cflags --libs jansson) -o "$dir/bench/$1"
}
row bench_a '"speed \"a\"", 6, 2, "x/s", true'
row bench_b '"time b", 6, 2, "ms", false'
row bench_c '"alone c", 5, 0, "ms", false'

echo '[{"name": "old"}]' >"$dir/out.json" # bench/run starts anew
"$source/bench/run" "$dir" --json "$dir/out.json" >"$dir/table"
grep -q 'speed "a" .* 3.00 x/s' "$dir/table"
python3 - "$dir/out.json" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["name"] for r in rows] == ['speed "a"', "time b", "alone c"], rows
assert all(set(r) == {"name", "ours", "peer", "ratio", "unit"} for r in rows), rows
assert abs(rows[0]["ratio"] - 3) < 1e-5 and abs(rows[1]["ratio"] - 1 / 3) < 1e-5, rows
assert rows[2]["peer"] is None and rows[2]["ratio"] is None, rows
END
echo 'precious' >"$dir/not.json"
! "$dir/bench/bench_a" --json "$dir/not.json" >/dev/null 2>&1
grep -qx precious "$dir/not.json"
