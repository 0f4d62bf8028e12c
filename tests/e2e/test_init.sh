#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# `tandem init`: from data alone to a job that trains, on one rank and on four with the same bits.
. "$(dirname "$0")/lib.sh"

# A table with all kinds of columns: a number of rows, numbers with gaps, categories, a constant,
# and the label at the end.
awk 'BEGIN { print "id,size,city,code,unit,kind"
    for (i = 0; i < 1200; i++) { k = i % 3
        printf "%d,%s,%s,c%d,kg,%s\n", i, i % 40 == 7 ? "NA" : 100 + 50 * k + i % 7,
            i % 2 ? "Oslo" : "\"Ro: #me\"", i % 100, substr("catdogeel", 1 + 3 * k, 3) } }' \
    >pets.csv
run 0 "$tandem" init pets.csv
has 'tandem train job.yaml'
cp job.yaml out
has '^name: pets$'
has '{numeric: size} # 100 .. 206, 2.5 % missing'
has '{one_hot: city} # 2 different values'
has '{hashed: code, buckets: 64} # 100 different values'
has 'left out: id (it numbers the rows)'
has 'left out: unit (the same value in every row)'
has 'label: kind # what is predicted; 3 different values'
has 'missing: mean'
has 'fit: train # nothing is measured'
has 'optimizer: {name: adamw, lr: 0.003'
has 'micro_batches: 8 '
has 'shuffle: uniform # every order'
run 0 "$tandem" check job.yaml -q
run 0 "$tandem" train job.yaml --set train.epochs=6
want=$(digest)
grep -q 'test accuracy  \(100.00\|9.\...\) %' out || fail "the new job does not learn"
run 0 "$tandem" train job.yaml --set train.epochs=6 -n 4 --run-dir four
same "four ranks"
if grep -qi 'idle' out; then fail "of four ranks one has nothing to do"; fi

# It does not overwrite, and says what is wrong in one line.
run 2 "$tandem" init pets.csv
has 'job.yaml exists; --force replaces it'
run 0 "$tandem" init pets.csv --label size --force
cp job.yaml out
has 'target: number'
has 'missing: drop # rows without a label teach nothing'
run 0 "$tandem" check job.yaml -q
run 2 "$tandem" init pets.csv --label nosuch -o x.yaml
has "pets.csv: there is no column 'nosuch'; it has id, size"
run 2 "$tandem" init pets.csv --label unit -o x.yaml
has "column 'unit' has one value in all rows"
run 2 "$tandem" init nosuch.csv -o x.yaml
has 'nosuch.csv: No such file'
: >odd.bin
run 2 "$tandem" init odd.bin -o x.yaml
has 'expected a table'
[ ! -e x.yaml ] || fail "a failed init leaves a file"

# A number to predict, from another folder; results are in the units of the data.
mkdir -p 'my jobs'
awk 'BEGIN { print "a\tb\tprice"
    for (i = 0; i < 300; i++) { a = i % 17; b = i % 23
        print a "\t" b "\t" 1000 + 20 * a - 7.5 * b } }' >houses.tsv
run 0 "$tandem" init houses.tsv -o 'my jobs/houses.yaml'
run 0 "$tandem" train 'my jobs/houses.yaml' --set train.epochs=40 --run-dir houses
run 0 "$tandem" eval houses --scores --json
python3 - out <<'PY' || fail "R2 of the new job"
import json, sys
text = open(sys.argv[1]).read()
r2 = json.loads(text[text.index("{"):])["scores"]["r2"]
sys.exit(0 if r2 > 0.9 else f"r2 {r2}")
PY

# What is between the cells is seen.
for between in ';' '|'; do
    tr '\t' "$between" <houses.tsv >other.csv
    run 0 "$tandem" init other.csv -o other.yaml --force
    grep -qF "delimiter: \"$between\"" other.yaml || fail "cells between $between"
    run 0 "$tandem" check other.yaml
    has 'price'
done

# Where the orders of samples are too many to tell, their places are drawn the fast way.
awk 'BEGIN { print "a,y"; for (i = 0; i < 150000; i++) print i % 977 "," i % 3 }' >long.csv
run 0 "$tandem" init long.csv -o long.yaml
! grep shuffle long.yaml || fail "150,000 rows in a uniform order"
run 0 "$tandem" check long.yaml -q

# Words to classify, and a text to continue.
awk 'BEGIN { for (i = 0; i < 200; i++) { k = i % 2
    printf "{\"id\": %d, \"text\": \"%s number %d of the long day\", \"label\": \"%s\"}\n", i,
        k ? "what a wonderful film" : "what a terrible book", i, k ? "good" : "bad" } }' >says.jsonl
run 0 "$tandem" init says.jsonl -o says.yaml
grep -q '{text: text}' says.yaml || fail "no text feature"
run 0 "$tandem" train says.yaml --set train.epochs=10 --run-dir says
has 'test accuracy  100.00 %'
for _ in {1..400}; do echo "the quick brown fox jumps over the lazy dog."; done >fox.txt
run 0 "$tandem" init fox.txt -o fox.yaml
run 0 "$tandem" train fox.yaml --set train.steps=20 --set train.epochs=1 --run-dir fox
run 2 "$tandem" init /dev/null -o x.yaml
has 'expected a table'
