#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The rows of a query to a PostgreSQL server, which the test starts, train the same weights as the
# same rows in a CSV file; what is wrong with an address or a query is said in a line.
. "$(dirname "$0")/lib.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
[ -x "$bin/initdb" ] ||
    { echo "skipped: there is no PostgreSQL server here (package postgresql)"; exit 77; }

# The server does not run as root: nobody owns its folder then. No password is asked for on its
# socket, which only this folder has.
base=$(mktemp -d "${TMPDIR:-/tmp}/tandem-pg-XXXXXX") || exit 1
as=()
if [ "$(id -u)" = 0 ]; then
    chown nobody "$base"
    as=(setpriv --reuid=nobody --clear-groups)
fi
also_clean() {
    [ -f "$base/db/postmaster.pid" ] && "${as[@]}" "$bin/pg_ctl" -D "$base/db" -m immediate -w stop
    rm -rf "$base"
} >/dev/null 2>&1
cd "$base" || exit 1
limited "${as[@]}" "$bin/initdb" -D "$base/db" -U tester -A trust -E UTF8 -N >"$dir/out" 2>&1 ||
    { cat "$dir/out"; fail "initdb"; }
limited "${as[@]}" "$bin/pg_ctl" -D "$base/db" -l "$base/log" -w -t 90 start \
    -o "-c listen_addresses='' -c unix_socket_directories='$base' -c fsync=off" \
    >"$dir/out" 2>&1 || { cat "$dir/out" "$base/log"; fail "the server does not start"; }
cd "$dir" || exit 1
sql() { "$bin/psql" -q -v ON_ERROR_STOP=1 -h "$base" -U tester -d postgres "$@"; }

python3 - <<'PY'
import random
random.seed(2)
rows = []
for i in range(240):
    k = random.randrange(3)
    rows.append((i, random.randrange(64) / 8 + k, random.randrange(64) / 4 - k, k == 1, k))
with open("t.csv", "w") as f:
    f.write("a,b,on,kind\n" + "".join(f"{a},{b},{int(o)},{k}\n" for _, a, b, o, k in rows))
random.shuffle(rows)
with open("t.sql", "w") as f:
    f.write('create table t (id int primary key, a float8, b real, "on" boolean, kind int);\n')
    f.write("copy t from stdin;\n")
    for i, a, b, o, k in rows:
        f.write(f"{i}\t{a}\t{b}\t{'t' if o else 'f'}\t{k}\n")
    f.write("\\.\n")
    f.write("create table gaps as select id, nullif(a, 3.0) as a, b, kind from t;\n")
PY
sql -f t.sql || fail "the table"
cat >job.yaml <<'YAML'
name: table
model: [{linear: 8, act: tanh}, linear]
data: {source: csv, train: t.csv, label: kind}
train: {batch: 24, epochs: 2, optimizer: {name: adam, lr: 0.01}}
log: {tensorboard: false, report: false}
YAML
run 0 "$tandem" train job.yaml --run-dir csv
want=$(digest)
at="postgresql://tester@/postgres?host=$base"
query='select a, b, "on", kind from t order by id'
sed "s|source: csv, train: t.csv|source: sql, train: '$at', query: '$query'|" job.yaml >sql.yaml
run 0 "$tandem" check sql.yaml
run 0 "$tandem" train sql.yaml --run-dir pg
same "a query to PostgreSQL"
run 0 "$tandem" train sql.yaml --run-dir pg2 -n 2
same "two ranks that ask PostgreSQL"
run 0 "$tandem" train sql.yaml --run-dir pg3 -n 2 --set data.distribute=broadcast
same "rank 0 alone asks PostgreSQL"
# A run knows what it was trained on: another table is noticed when it goes on.
sql -c 'update t set a = a + 1 where id = 7'
run 2 "$tandem" train --resume=pg --set train.epochs=3
has 'changed'
# NULL is missing.
run 2 "$tandem" check sql.yaml --set 'data.query=select a, b, kind from gaps order by id'
has 'missing'
run 0 "$tandem" train sql.yaml --run-dir gaps --set data.missing=mean \
    --set 'data.query=select a, b, kind from gaps order by id'
# Mistakes.
wrong() { # TEXT ARGUMENTS...
    local text=$1; shift
    run 2 "$tandem" check sql.yaml "$@"
    [ "$(grep -c . out)" = 1 ] || fail "more than a line"
    has "$text"
}
wrong 'no ORDER BY' --set 'data.query=select a, kind from t'
wrong 'relation "nosuch" does not exist' --set 'data.query=select * from nosuch order by 1'
wrong 'multiple commands' --set 'data.query=select a, kind from t order by id; drop table t'
wrong 'read-only transaction' \
    --set 'data.query=with gone as (delete from t returning *) select * from gone order by id'
wrong 'gives no rows' --set 'data.query=select a, kind from t where a > 1e9 order by id'
wrong 'database "nosuch" does not exist' --set "data.train=postgresql://tester@/nosuch?host=$base"
wrong 'No such file' --set "data.train=postgresql://tester@/postgres?host=$dir/nowhere"
for password in secret 'se?cret'; do
    wrong 'has a password' --set "data.train=postgresql://tester:$password@/postgres?host=$base"
done
[ "$(sql -At -c 'select count(*) from t')" = 240 ] || fail "the table was changed"
# A server that goes silent is found out by the query's own limit, not waited for: here it is gone.
"${as[@]}" "$bin/pg_ctl" -D "$base/db" -m immediate -w stop >/dev/null 2>&1
wrong 'postgresql://'
