#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that is not resumed stays as it is: until all ranks can go on with it, no file in its
# directory changes, whoever refuses.
. "$(dirname "$0")/lib.sh"

awk -v OFS=, 'BEGIN { print "a,b,kind"
    for (i = 0; i < 120; i++) print i % 17, i % 5, i % 3 }' >table.csv
cat >"$mark" <<'YAML'
name: small
model: [{linear: 8, act: relu}, linear]
data: {source: csv, train: table.csv, maps: [normalize]}
train: {batch: 20, epochs: 2, optimizer: {name: adam, lr: 0.01}}
YAML
run 0 "$tandem" train "$mark" -q --run-dir run
echo 'rank 1: gone' >run/failed.txt # as of a run that failed,
touch run/job.yaml.tmp-1            # and was killed while it wrote
state() { # but for the lock, which says who looked
    find run -printf '%P %y %l\n' | sort
    find run -type f ! -name .lock -exec sha256sum {} + | sort
}
state >before
unchanged() { state | diff before - >&3 || fail "$1: the run's directory has changed"; }

longer=(--set train.epochs=4)
refuse() { # WHAT STATUS TEXT COMMAND...
    local what=$1 want=$2 text=$3; shift 3
    run "$want" "$@"
    has "$text"
    unchanged "$what"
}
differs() { # RANKS...
    refuse "another job, $*" 2 'the job differs in train.batch' \
        "$tandem" train "$mark" -q --resume=run "${longer[@]}" --set train.batch=10 "$@"
}
changed() {
    refuse "changed data, $*" 2 'its data have changed: the samples of the train part are others' \
        "$tandem" train "$mark" -q --resume=run "${longer[@]}" "$@"
}
differs; differs -n 2; differs -n 2:2
cp table.csv good.csv
sed 's/^16,/15,/' good.csv >table.csv
changed; changed -n 2; changed -n 2:2; changed -n 1:2

# Only rank 1 has data that it cannot read: rank 0 would go on.
mkdir 0 1
cp good.csv 0/table.csv; sed '9s/^[0-9]*/x/' good.csv >1/table.csv
cat >ranks.sh <<'SH'
cp "$1/job.yaml" "$1/$RANK" &&
    exec "$2" train "$1/$RANK/job.yaml" -q --resume="$1/run" --set train.epochs=4
SH
refuse "a rank without its data" 1 "table.csv:9: column 'a' is 'x'" \
    "$tandem" launch -n 2 -- sh ranks.sh "$dir" "$tandem"

# Once it is accepted it goes on, and its directory says so.
cp good.csv table.csv
cp -r run fixed
run 0 "$tandem" train "$mark" -q --resume=fixed "${longer[@]}"
want=$(digest)
run 0 "$tandem" train "$mark" -q --resume=run "${longer[@]}" -n 2:2
same "resumed on elastic ranks"
for d in fixed run; do
    grep -q 'epochs: 4' "$d/job.yaml" || fail "$d/job.yaml is not that of the longer run"
    [ ! -e "$d/failed.txt" ] && [ ! -e "$d/job.yaml.tmp-1" ] || fail "$d: old files are left"
done
