#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# data.distribute with files that only rank 0 has: a folder of images, a tar archive, TFRecord and
# Parquet files. Two ranks have the digest of one, by every method.
. "$(dirname "$0")/lib.sh"

mkdir first others
cat >make.py <<'PY'
import os, random, sys
sys.path.insert(0, sys.argv[1])
import parquet
from tfrecord import data, example, floats, ints, png, record
random.seed(6)
draw = random.randrange
rows = [(draw(64) / 8, draw(64) / 4, draw(3)) for _ in range(120)]
with open("first/t.tfrecord", "wb") as f:
    f.write(b"".join(record(example(a=floats(a + k), b=floats(b - k), label=ints(k)))
                     for a, b, k in rows))
parquet.write("first/t.parquet", [
    ("a", "double", [a + k for a, _, k in rows], "plain"),
    ("b", "float", [None if i % 9 == 4 else b - k for i, (_, b, k) in enumerate(rows)], "plain"),
    ("word", "text", [b"big" if a > 4 else b"small" for a, _, _ in rows], "dictionary"),
    ("kind", "int32", [k for _, _, k in rows], "dictionary")], groups=3)
os.makedirs("flat")
for i in range(60):
    kind, image = ("even", "odd")[i % 2], png(draw(256), draw(9, 20), draw(9, 20), i % 2 * 3)
    os.makedirs(f"first/shapes/{kind}", exist_ok=True)
    for name in (f"first/shapes/{kind}/{i:03}.png", f"flat/s{i:03}.png"):
        open(name, "wb").write(image)
    open(f"flat/s{i:03}.cls", "w").write(kind)
open("first/im.tfrecord", "wb").write(b"".join(record(example(**{
    "image/encoded": data(open(f"flat/s{i:03}.png", "rb").read()),
    "image/class/label": ints(i % 2)})) for i in range(60)))
PY
python3 make.py "$source/tests/e2e" || fail "cannot make files"
(cd flat && tar cf ../first/shapes.tar --format=ustar --sort=name -- *)

# Ranks find the files by a relative name, from where they are.
cat >each <<'SH2'
#!/bin/sh
[ "$TANDEM_RANK" = 0 ] && cd "$1/first" || cd "$1/others"
shift
exec "$@"
SH2
chmod +x each
# spread N ARGS...: a run whose files are in first/; output in ./out
runs=0
spread() {
    local n=$1; shift
    set -- "$tandem" train "$mark" -q --run-dir "$dir/run$((++runs))" "$@"
    [ "$n" -gt 1 ] && set -- "$tandem" launch -n "$n" -- "$dir/each" "$dir" "$@"
    (cd "$dir/first" && timeout $((2 * patience)) "$@") >out 2>&1
}

while read -r name data; do
    cat >"$mark" <<JOB
name: $name
model: [flatten, {linear: 8, act: relu}, {dropout: 0.1}, linear]
data: {$data, split: {valid: 0.2}}
train: {batch: 16, epochs: 2, optimizer: {name: adam, lr: 0.01}}
log: {tensorboard: false, report: false}
JOB
    in=(--set data.dir=.)
    [ "$name" = folder ] && in=(--set data.dir=shapes)
    spread 1 "${in[@]}" || fail "$name on one rank"
    want=$(digest)
    [ -n "$want" ] || fail "$name: no digest"
    for method in broadcast chain all_gather scatter lazy index; do
        spread 2 "${in[@]}" --set data.distribute=$method || fail "$name, $method: failed"
        same "$name, $method"
    done
    spread 2 "${in[@]}" && fail "$name: every rank has the files"
done <<'SOURCES'
folder source: images, size: 8
tar source: webdataset, train: shapes.tar, size: 8
tfrecord source: tfrecord, train: t.tfrecord, maps: [normalize]
pictures source: tfrecord, train: im.tfrecord, size: 8
parquet source: parquet, train: t.parquet, missing: mean, maps: [normalize]
measured source: parquet, train: t.parquet, missing: mean, maps: [normalize], fit: train
SOURCES
none_left "the last one"
