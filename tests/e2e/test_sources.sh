#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same rows as CSV, in an SQLite database and in TFRecord files train the same weights; images
# in TFRecord files; what is wrong with files and queries is said in a line.
. "$(dirname "$0")/lib.sh"
python3 -c 'import sqlite3' 2>/dev/null || { echo "skipped: python3 has no sqlite3"; exit 77; }

cat >make.py <<'PY'
import random, sqlite3, sys
sys.path.insert(0, sys.argv[1])
from tfrecord import data, example, floats, ints, loose, png, record
random.seed(2)
draw = random.randrange
rows = [(i, draw(64) / 8, draw(64) / 4, draw(3)) for i in range(240)]
rows = [(i, a + k, b - k, k) for i, a, b, k in rows]
with open("t.csv", "w") as f:
    f.write("a,b,kind\n" + "".join(f"{a},{b},{k}\n" for _, a, b, k in rows))
db = sqlite3.connect("t.db")
db.execute("create table t (id integer primary key, a real, b real, kind integer)")
shuffled = rows[:]; random.shuffle(shuffled)
db.executemany("insert into t values (?, ?, ?, ?)", shuffled)
db.execute("create table gaps as select id, nullif(a, 3.0) as a, b, kind from t")
db.commit()

out = [record(example(b=floats(b) if i % 2 else loose(b), label=ints(k), a=floats(a)))
       for i, a, b, k in rows]
open("all.tfrecord", "wb").write(b"".join(out))
open("t-00-of-02", "wb").write(b"".join(out[:100]))
open("t-01-of-02", "wb").write(b"".join(out[100:]))
odd = example(a=floats(1, 2), b=floats(1), label=ints(0))
open("odd.tfrecord", "wb").write(out[0] + record(odd))
open("nan.tfrecord", "wb").write(
    out[0] + record(example(a=floats(float("nan")), b=floats(1), label=ints(0))))
bad = bytearray(b"".join(out[:3])); bad[-7] ^= 1
open("bad.tfrecord", "wb").write(bad)
open("im.tfrecord", "wb").write(b"".join(record(example(**{
    "image/encoded": data(png(20 + i % 2 * 200)), "image/height": ints(8),
    "image/class/label": ints(i % 2)})) for i in range(60)))
PY
python3 make.py "$source/tests/e2e" || fail "cannot make files"
cat >job.yaml <<'YAML'
name: t
model: [{linear: 8, act: relu}, linear]
data: {source: csv, train: t.csv, maps: [normalize], split: {valid: 0.2}}
train: {batch: 16, epochs: 2, optimizer: {name: adamw, lr: 0.01}}
log: {tensorboard: false, report: false}
YAML
job() { sed "s/{source: csv, train: t.csv,/{$1,/" job.yaml >"$2.yaml"; }
run 0 "$tandem" train job.yaml --run-dir csv
want=$(digest)
job 'source: sql, train: t.db, query: "select a, b, kind from t order by id"' sql
run 0 "$tandem" train sql.yaml --run-dir sql
same "rows of a query"
run 0 "$tandem" train sql.yaml --run-dir sql2 -n 2
same "rows of a query, two ranks"
# A database in WAL mode, whose last rows are in the log beside it, and one whose log was taken in.
python3 - <<'PY'
import os, sqlite3, shutil
shutil.copy("t.db", "wal.db")
db = sqlite3.connect("wal.db")
db.execute("pragma journal_mode = wal")
db.close()
shutil.copy("wal.db", "plain?wal.db")
db = sqlite3.connect("wal.db")
db.execute("pragma wal_autocheckpoint = 0")
db.execute("delete from t where id >= 200")
db.commit()
rows = sqlite3.connect("t.db").execute("select * from t where id >= 200").fetchall()
db.executemany("insert into t values (?, ?, ?, ?)", rows)
db.commit()
assert os.path.getsize("wal.db-wal")
for end in ("", "-wal", "-shm"): # as a writer that is at work, or has died, leaves them
    shutil.copy("wal.db" + end, "log.db" + end)
PY
sha256sum log.db log.db-wal >sums
run 0 "$tandem" train sql.yaml --run-dir wal --set data.train=log.db
same "rows in the log of a database"
sha256sum --quiet -c sums || fail "reading has changed the database"
run 0 "$tandem" train sql.yaml --run-dir wal2 --set 'data.train=plain?wal.db'
same "a database in WAL mode without a log"
[ ! -e 'plain?wal.db-wal' ] || fail "reading has made a log"
job 'source: tfrecord, train: all.tfrecord' tf
run 0 "$tandem" train tf.yaml --run-dir tf
same "TFRecord"
run 0 "$tandem" train tf.yaml --run-dir tf2 --set 'data.train=t-{00..01}-of-02' -n 2
same "two TFRecord files, two ranks"
run 0 "$tandem" predict tf --input all.tfrecord -o said.csv
[ "$(wc -l <said.csv)" = 241 ] || fail "$(wc -l <said.csv) lines of predictions"
run 0 "$tandem" predict sql --input t.db -o said.csv
run 0 "$tandem" check sql.yaml --set 'data.query=select a, b, kind from gaps order by id' \
    --set data.missing=mean
has 'column a .* missing'
cat >im.yaml <<'YAML'
name: im
model: [flatten, linear]
data: {source: tfrecord, train: im.tfrecord, split: {valid: 0.2, test: 0.2}}
train: {batch: 8, epochs: 6, optimizer: {name: adamw, lr: 0.01}}
log: {tensorboard: false, report: false}
YAML
run 0 "$tandem" train im.yaml --run-dir im
has 'test accuracy  100.00 %'

# What is wrong.
wrong() { run 2 "$tandem" check "$1.yaml" --set "$2"; has "$3"; }
wrong sql 'data.query=select a, b, kind from t' 'data.query: it has no ORDER BY'
wrong sql 'data.query=select a, nosuch from t order by id' 'data.query: no such column: nosuch'
wrong sql 'data.query=drop table t -- order by' 'data.query: expected a SELECT'
wrong sql 'data.query=select a, b from t order by 1; delete from t' 'expected one query'
wrong sql 'data.query=select a, b from t where a > 99 order by 1' 'the query gives no rows'
wrong sql data.train=t.csv 'not an SQLite database'
wrong tf data.train=t.csv 'not a TFRecord file, or damaged'
wrong tf data.train=bad.tfrecord 'record 3 is damaged'
wrong tf data.train=odd.tfrecord 'record 2 has other features than the first'
wrong tf data.train=nan.tfrecord 'record 2 has a value that is not a finite number'
wrong tf data.label=nosuch "there is no feature 'nosuch'"
wrong tf 'data.columns=[nosuch]' "there is no feature 'nosuch'"
head -c 90 all.tfrecord >cut.tfrecord
wrong tf data.train=cut.tfrecord 'it ends within record\|damaged'
