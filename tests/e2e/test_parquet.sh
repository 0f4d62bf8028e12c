#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The same rows as CSV and as Parquet, in every encoding and codec, train the same weights; missing
# values, texts, booleans; damaged files are refused in a line. Files are written by a small writer
# of our own (parquet.py), and by pyarrow where its environment can be made in BUILD/venv-parquet;
# where it cannot (no network), the test counts as skipped once all else has passed
# (test_golden_formats reads files that pyarrow wrote).
. "$(dirname "$0")/lib.sh"

cat >make.py <<'PY'
import random, sys
sys.path.insert(0, sys.argv[1])
from parquet import write
random.seed(4)
n = 300
a = [random.randrange(64) / 8 for _ in range(n)]
k = [random.randrange(-5, 900) for _ in range(n)]
city = [random.choice([b"Rome", b"Romont", b"Oslo", b"Os"]) for _ in range(n)]
flag = [random.random() < 0.3 for _ in range(n)]
gaps = [None if random.random() < 0.2 else random.randrange(99) / 4 for _ in range(n)]
kind = [(int(x) + (c == b"Oslo")) % 3 for x, c in zip(a, city)]
def rows(path, step=1):
    with open(path, "w") as f:
        f.write("a,k,city,flag,gaps,kind\n")
        for i in range(0, n, step):
            g = "" if gaps[i] is None else gaps[i]
            f.write(f"{a[i]},{k[i]},{city[i].decode()},{int(flag[i])},{g},{kind[i]}\n")
rows("t.csv")
def table(texts, ints, reals="plain", flags="plain"):
    return [("a", "double", a, reals), ("k", "int64", k, ints), ("city", "text", city, texts),
            ("flag", "bool", flag, flags), ("gaps", "float", gaps, reals),
            ("kind", "int32", kind, ints)]
write("plain.parquet", table("plain", "plain"))
write("words.parquet", table("dictionary", "dictionary", "dictionary"), groups=3)
write("delta.parquet", table("lengths", "delta", flags="rle"), version=2)
write("prefix.parquet", table("prefixes", "delta"), groups=2, gzip=True, version=2)
write("zipped.parquet", table("dictionary", "plain"), groups=2, gzip=True)
PY
python3 make.py "$source/tests/e2e" || fail "cannot make files"
cat >job.yaml <<'YAML'
name: t
model: [{linear: 8, act: relu}, linear]
data: {source: csv, train: t.csv, missing: mean, maps: [normalize], split: {valid: 0.2}}
train: {batch: 16, steps: 8, optimizer: {name: adamw, lr: 0.01}}
log: {tensorboard: false, report: false}
YAML
sed 's/source: csv, train: t.csv/source: parquet, train: plain.parquet/' job.yaml >pq.yaml
run 0 "$tandem" train job.yaml --run-dir csv
want=$(digest)
for f in plain words delta prefix zipped; do
    run 0 "$tandem" train pq.yaml --run-dir $f --set data.train=$f.parquet
    same "$f.parquet"
done
run 0 "$tandem" train pq.yaml --run-dir two -n 2
same "two ranks"
run 0 "$tandem" predict words --input delta.parquet -o said.csv
[ "$(wc -l <said.csv)" = 301 ] || fail "$(wc -l <said.csv) lines of predictions"

# What is wrong: each byte of a small file changed, each cut: a line and status 2, or it is read.
wrong() { run 2 "$tandem" check pq.yaml --set "data.train=$1"; has "$2"; }
wrong t.csv 'it does not begin and end with PAR1'
head -c 2000 plain.parquet >cut.parquet
printf PAR1 >>cut.parquet
wrong cut.parquet 'damaged, or not a Parquet file'
(head -c -4 plain.parquet; printf PARE) >secret.parquet
wrong secret.parquet 'an encrypted file is not supported'

venv=$build/venv-parquet
make_venv() {
    python3 -m venv "$venv" && limited "$venv/bin/pip" install --quiet --disable-pip-version-check \
        --retries 1 -r "$source/tests/e2e/parquet.txt" && touch "$venv/ready"
}
exec 9>"$venv.lock"
flock 9
if [ ! -e "$venv/ready" ] && ! make_venv >out 2>&1; then
    echo "test_parquet: no pyarrow: its part is skipped: $(tail -n 1 out)"
    exit 77
fi
exec 9>&-
cat >arrow.py <<'PY'
import pyarrow as pa, pyarrow.csv, pyarrow.parquet as pq
t = pyarrow.csv.read_csv("t.csv")
t = t.set_column(3, "flag", t["flag"].cast(pa.bool_()))
for codec in ("none", "snappy", "gzip", "zstd"):
    pq.write_table(t, f"arrow-{codec}.parquet", compression=codec, row_group_size=70)
pq.write_table(t, "arrow-v2.parquet", data_page_version="2.0", data_page_size=256)
pq.write_table(t, "arrow-delta.parquet", use_dictionary=False, column_encoding={
    "a": "PLAIN", "k": "DELTA_BINARY_PACKED", "city": "DELTA_BYTE_ARRAY", "flag": "RLE",
    "gaps": "PLAIN", "kind": "DELTA_BINARY_PACKED"})
pq.write_table(t, "arrow-length.parquet", use_dictionary=["a"],
               column_encoding={"city": "DELTA_LENGTH_BYTE_ARRAY"})
pq.write_table(pa.table({"a": [[1, 2], [3]], "b": [1, 2]}), "nested.parquet")
pq.write_table(t, "brotli.parquet", compression="brotli")
pq.write_table(t, "split.parquet", use_dictionary=False, column_encoding={"a": "BYTE_STREAM_SPLIT"})
PY
run 0 "$venv/bin/python" arrow.py
for f in none snappy gzip zstd v2 delta length; do
    run 0 "$tandem" train pq.yaml --run-dir arrow-$f --set data.train=arrow-$f.parquet
    same "pyarrow: $f"
done
wrong nested.parquet 'a nested column is not supported'
wrong brotli.parquet 'this compression is not supported'
wrong split.parquet 'an encoding of a column is not supported'
