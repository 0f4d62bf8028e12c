#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Exported modules give the predictions of `tandem predict` in PyTorch: for every kind of layer, for
# rows of all kinds of data, and for each job that `tandem init` writes.
. "$(dirname "$0")/lib.sh"
find_torch && "$python" -c 'import numpy' 2>/dev/null ||
    { echo "skipped: no PyTorch with numpy (make bench-torch installs one)"; exit 77; }
. "$source/tests/e2e/export.sh"
. "$source/tests/e2e/export_rows.sh"

cat >torched.py <<'PY'
import csv, importlib, sys
import torch
from npy import check
for name in sys.argv[1:]:
    m = importlib.import_module(name + '_net').load()
    check(name, lambda x: m(torch.tensor(x)).detach().numpy())
import table_net
want = [r['prediction'] for r in csv.DictReader(open('table.out.csv'))]
got = table_net.predict(list(csv.DictReader(open('table.csv'))))
assert got == want, (got, want)
PY
# shellcheck disable=SC2086 # names
run 0 "$python" torched.py $names
cat out

cat >rows_torched.py <<'PY'
import importlib, sys, warnings
import rows
warnings.simplefilter('ignore')
for name in sys.argv[1:]:
    m = importlib.import_module(name + '_net')
    y = m.load()(*m.preprocess(rows.rows(name))).detach().double()
    classes = m.classes_of(list(y.shape))
    rows.compare(name, y.reshape(-1, y.shape[-1]).tolist(), classes is not None)
PY
# shellcheck disable=SC2086 # names
run 0 "$python" rows_torched.py $rows_names
cat out

# From data alone to predictions in PyTorch. What the jobs were made of is gone by then.
awk 'BEGIN { print "size,city,code,kind"
    for (i = 0; i < 1200; i++) { k = i % 3
        printf "%s,%s,c%d,%s\n", i % 40 == 7 ? "NA" : 100 + 50 * k + i % 7,
            i % 2 ? "Oslo" : "Rome", i % 100, substr("catdogeel", 1 + 3 * k, 3) } }' >pets.csv
{ sed -n 1,60p pets.csv; echo 150,Paris,c7,dog; echo NA,Rome,c500,cat; } >new_pets.csv
awk 'BEGIN { for (i = 0; i < 200; i++) { k = i % 2
    printf "{\"text\": \"%s number %d of the long day\", \"label\": \"%s\"}\n",
        k ? "what a wonderful film" : "what a terrible book", i, k ? "good" : "bad" } }' >says.jsonl
sed -n 1,20p says.jsonl >new_says.jsonl
awk 'BEGIN { print "a,b,price"; for (i = 0; i < 300; i++) { a = i % 17; b = i % 23
    print a "," b "," 1000 + 20 * a - 7.5 * b } }' >houses.csv
sed -n 1,50p houses.csv >new_houses.csv
for _ in {1..400}; do echo "the quick brown fox jumps over the lazy dog."; done >fox.txt
head -c 400 fox.txt >new_fox.txt
mv away/data/images pics
mv new_images new_pics
for data in pets.csv says.jsonl houses.csv fox.txt pics; do
    name=${data%.*}
    run 0 "$tandem" init "$data" -o "$name.yaml"
    run 0 "$tandem" train "$name.yaml" --set train.steps=40 --run-dir "init_$name" -q
    rm -r "$data"
    run 0 "$tandem" export "init_$name" -o "init_${name}_net.py"
    run 0 "$tandem" predict "init_$name" --input "new_$data" -o "$name.jsonl"
done
cat >init.py <<'PY'
import csv, importlib, json, warnings
import rows
warnings.simplefilter('ignore')
news = {'pets': list(csv.DictReader(open('new_pets.csv'))),
        'houses': list(csv.DictReader(open('new_houses.csv'))),
        'says': [json.loads(line) for line in open('new_says.jsonl')],
        'fox': [open('new_fox.txt').read()], 'pics': rows.images()}
for name, new in news.items():
    m = importlib.import_module(f'init_{name}_net')
    want = [json.loads(line) for line in open(name + '.jsonl')]
    got = m.predict(new)
    assert len(got) == len(want), (name, len(got), len(want))
    for a, b in zip(got, want):
        if name == 'houses': # in the data's units
            assert abs(a[0] - b['value'][0]) < 1e-5 * abs(a[0]) and 500 < a[0] < 1500, (a, b)
        else:
            assert a == b['prediction'], (name, a, b)
    print(f'init {name}: {len(got)} predictions')
PY
run 0 "$python" init.py
cat out
