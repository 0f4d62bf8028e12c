#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# What an exported module makes of rows is what `tandem predict` makes of them, by plain Python,
# without PyTorch: cells of all kinds of columns, windows, texts, images, stages. The models are a
# linear layer over that, at most after an embedding, so that a few lines compute them here.
# TD_PIL_PYTHON may name a Python with Pillow, for images in files.
. "$(dirname "$0")/lib.sh"
. "$source/tests/e2e/export_rows.sh"

cat >plain.py <<'PY'
import glob, importlib, json, struct, sys, warnings
import rows
def weights(name, m):
    data = open(name + '_net.safetensors', 'rb').read()
    n = 8 + int.from_bytes(data[:8], 'little')
    head = json.loads(data[8:n])
    out = []
    for w, shape, _ in m.WEIGHTS:
        a, b = head[w]['data_offsets']
        flat = struct.unpack(f'<{(b - a) // 4}f', data[n + a:n + b])
        out.append([flat[i:i + shape[1]] for i in range(0, len(flat), shape[1])]
                   if len(shape) == 2 else flat)
    return out
def linear(x, w, b):
    assert all(len(x) == len(line) for line in w), (len(x), len(w[0]))
    return [sum(p * q for p, q in zip(x, line)) + c for line, c in zip(w, b)]
for name in sys.argv[1:]:
    m = importlib.import_module(name + '_net')
    w = weights(name, m)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        ((dtype, shape, values),) = m.samples(rows.rows(name)).values()
    if name == 'cells':
        texts = [str(s.message) for s in said if s.category is UserWarning]
        assert len(texts) == 1 and "column 'code'" in texts[0] and '"other"' in texts[0], texts
    assert all(len(v) == m.count_of(shape) for v in values), (name, shape)
    if dtype == 'u8': # the model takes bytes as 0 .. 1
        values = [[v / 255 for v in row] for row in values]
    if len(w) == 3: # ids: of each sample together, or of each position alone
        looked_up = [[w[0][i] for i in row] for row in values]
        values = [v for row in looked_up for v in
                  (row if name == 'letters' else [[e for vector in row for e in vector]])]
    outputs = [linear(row, w[-2], w[-1]) for row in values]
    units = [s for s in m.RECIPE['stages'] if s['field'] == 'y']
    if units:
        outputs = [[v * units[0]['std'][0] + units[0]['mean'][0] for v in y] for y in outputs]
    rows.compare(name, outputs, not units)
# Pillow, where it is there, and our own lines scale to the same bytes.
for name in ('photos', 'greys', 'dots'):
    m = importlib.import_module(name + '_net')
    if m.Image is None:
        print(f'{name}: no Pillow here: images in files are not read')
        continue
    read = m.samples(sorted(glob.glob('new_images/*.png')))
    m.Image = None
    assert read == m.samples(rows.images()), name
    print(f'{name}: the same with Pillow')
PY
# shellcheck disable=SC2086 # names
run 0 "${TD_PIL_PYTHON:-python3}" plain.py $rows_names
cat out

# Rows that tandem refuses are refused, and for the same cell.
refused() { # MODULE COLUMN VALUE EXPECTED
    python3 - "$@" <<'PY' || fail "$1: $2 '$3'"
import csv, importlib, sys
import rows
name, column, value, expected = sys.argv[1:]
table = rows.rows(name)
table[3][column] = value
with open('bad.csv', 'w', newline='') as f:
    w = csv.DictWriter(f, table[0])
    w.writeheader()
    w.writerows(table)
try:
    importlib.import_module(name + '_net').samples(table)
except ValueError as e:
    sys.exit(f"row 4: column '{column}'" not in str(e) or expected not in str(e))
sys.exit('taken')
PY
    run 2 "$tandem" predict "$1" --input bad.csv -o bad.npy
    has "bad.csv:5: column '$2'"
    has "$4"
}
refused cells size abc 'a finite number'
refused cells size 1_0 'a finite number'
refused cells size 1e39 'a finite number'
refused cells size infinity 'a finite number'
refused words size NA 'the model has seen no row without it'
refused words word '' 'a text that occurs in the train file'
python3 - <<'PY' || fail "a column that is not there"
import sys
import cells_net
try:
    cells_net.samples([{'size': '1'}])
except ValueError as e:
    sys.exit("there is no column 'code'" not in str(e))
PY
echo "test_export_rows: ok"
