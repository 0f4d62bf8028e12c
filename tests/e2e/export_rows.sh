# SPDX-License-Identifier: Apache-2.0
# What tests of exported modules' preprocessing share; sourced after lib.sh. For each of $rows_names
# a model was trained on data that are no longer there: NAME_net.py is its module, NAME.said.npy
# what `tandem predict` says of new rows, and rows.py has these: rows.rows(NAME), as somebody in
# Python reads them.
# shellcheck shell=bash disable=SC2154,SC2086 # lib.sh has them; names
python3 - <<'PY' || fail "no rows"
import json, os, random, struct, zlib
random.seed(11)
os.makedirs('data')
def table(path, head, rows):
    with open(path, 'w', newline='') as f:
        f.write(','.join(head) + '\n')
        f.writelines(','.join(str(row[c]) for c in head) + '\n' for row in rows)

# Cells that only look alike, numbers as people write them, texts with blanks and bytes above 127.
codes = ['0150', '150', '1.50e2', '1', '1.0', ' 1', 'A 1', 'Ä']
sizes = ['12', ' 7.5 ', '.5', '5.', '1e1', '+3', '-2.25', '1E2', '3.1415926535897931', '1e-40']
towns = ['Oslo', 'Rome', 'São Paulo', ' Oslo', 'oslo', 'Kyōto', '7', '']
def cells(i, more=()):
    pick = lambda list_, k: list_[(i * k + i // 7) % len(list_)]
    return {'size': pick(sizes + list(more[:2]), 3), 'code': pick(codes + list(more[2:6]), 5),
            'age': pick(['3', '10', '10.0', '39.99', '40', '1e3'] + list(more[:1]), 1),
            'town': pick(towns + list(more[4:5]), 3), 'shop': pick(['7', '07', 'x', 'y'], 3),
            'word': pick(['NA', 'a', 'b', 'nan'], 3),
            'note': pick(['Good; and cheap', "it's BAD bad bad", 'na\xefve caf\xe9 \U0001f600',
                          'x' * 70 + ' y', 'one two three four five six seven'], 2),
            'price': 1000 + 7.5 * (i % 23) - 3 * (i % 5), 'kind': 'uvw'[i % 3]}
head = ['size', 'code', 'age', 'town', 'shop', 'word', 'note', 'price', 'kind']
table('data/train.csv', head, [cells(i) for i in range(120)])
# Missing sizes and ages; codes that nobody knows, or that are other texts for known numbers.
odd = ['NA', ' nan ', '150.0', '01', 'Paris', '', '-1.#IND']
table('new.csv', head[:-2], [cells(i, odd) for i in range(60)])
table('plain.csv', head[:-2], [cells(i) for i in range(30)])

def item(i):
    return {'at': {'x': [0.1 * (i % 7), i, i % 3 == 0], 'of': '%d' % (i % 4)}, 'flag': i % 5 == 0,
            'ratio': (i % 6) / 3, 'whole': i % 4,
            'none': None if i % 9 == 4 else 'é' * (i % 3 + 1)}
for path, n, kind in (('data/items.jsonl', 90, True), ('new.jsonl', 40, False)):
    with open(path, 'w') as f:
        for i in range(n):
            f.write(json.dumps({**item(i), **({'kind': 'pq'[i % 2]} if kind else {})},
                               ensure_ascii=i % 2 == 0) + '\n')
for path, n in (('data/load.csv', 90), ('new_load.csv', 31)):
    table(path, ['hour', 'load'], [{'hour': i % 24, 'load': 50 + (i * 7) % 13} for i in range(n)])
for path, n in (('data/letters.txt', 700), ('new_letters.txt', 90)):
    with open(path, 'w') as f:
        f.write(''.join(random.choice('abcdé ñ\n\U0001f600z') for _ in range(n)))

def png(path, w, h, pixels):
    raw = b''.join(b'\0' + pixels[3 * w * y:3 * w * (y + 1)] for y in range(h))
    chunk = lambda k, d: struct.pack('>I', len(d)) + k + d + struct.pack('>I', zlib.crc32(k + d))
    with open(path, 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', w, h, 8, 2, 0, 0, 0))
                + chunk(b'IDAT', zlib.compress(raw)) + chunk(b'IEND', b''))
os.makedirs('new_images')
seen = []
for i in range(24):
    w, h = random.randrange(9, 30), random.randrange(9, 30)
    pixels = bytes((x * (i + 3) + y * 5 + 40 * c + random.randrange(60)) % 256
                   for y in range(h) for x in range(w) for c in range(3))
    os.makedirs(f'data/images/{"ab"[i % 2]}', exist_ok=True)
    png(f'data/images/{"ab"[i % 2]}/{i:02}.png', w, h, pixels)
    if i < 6:
        png(f'new_images/{i}.png', w, h, pixels)
        seen.append((w, h, pixels.hex()))
json.dump(seen, open('images.json', 'w'))

def npy(path, form, dtype, shape, values):
    start = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
    with open(path, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(start)) + start.encode())
        f.write(struct.pack(f'<{len(values)}{form}', *values))
pixels = [random.randrange(256) for _ in range(30 * 20)]
npy('data/x.npy', 'B', '|u1', (30, 4, 5), pixels)
npy('data/y.npy', 'i', '<i4', (30,), [i % 3 for i in range(30)])
npy('new.npy', 'B', '|u1', (8, 4, 5), pixels[:160])
json.dump(pixels[:160], open('pixels.json', 'w'))
PY

rows_job() { # NAME MODEL DATA [MORE]
    cat >"$1.yaml" <<YAML
name: $1
model: $2
data: {$3, split: {valid: 0.1}}
train: {batch: 10, steps: 3, optimizer: {name: sgd, lr: 0.01}, eval: {every: never}}
log: {tensorboard: false, report: false}
${4:-}
YAML
}
csv='source: csv, train: data/train.csv, label: kind'
number="source: csv, train: data/train.csv, label: price, target: number"
rows_job cells '[linear]' "$csv, missing: mean, features: [{numeric: size}, {one_hot: code},
  {bucketized: age, boundaries: [10, 40]}, {hashed: town, buckets: 7},
  {crossed: [town, code], buckets: 9}], maps: [normalize]"
rows_job words '[linear]' "$csv, columns: [word, size], maps: [{normalize: {mean: 0.5, std: 3}}]"
rows_job shops '{input: shop, layers: [{embedding: 4}, linear]}' \
    "$csv, missing: drop, features: [{embedding: shop}]"
for unit in word char lower byte; do
    rows_job notes_$unit '[{embedding: 3}, flatten, linear]' "$csv, columns: [note],
      maps: [{tokenize: {unit: $unit, size: 9$([ $unit = word ] && echo ', vocab: 12')}}]"
done
rows_job items '[linear]' "source: jsonl, train: data/items.jsonl, label: kind, missing: median,
  features: [{numeric: 'at.x[0]'}, {one_hot: ratio}, {one_hot: 'at.of'}, {one_hot: flag},
  {hashed: none, buckets: 5}, {hashed: 'at.x[2]', buckets: 6}, {crossed: [whole, ratio],
  buckets: 11}]"
rows_job load '[flatten, linear]' 'source: csv, train: data/load.csv, label: load, target: number,
  window: 5, stride: 2, features: [{numeric: load}, {numeric: hour}],
  maps: [normalize, {normalize: {field: y}}]' 'loss: mse'
rows_job price '[linear]' "$number, missing: zero, features: [{numeric: size}, {one_hot: code}],
  maps: [normalize, {normalize: {field: y}}]" 'loss: huber'
rows_job letters '[{embedding: 4}, linear]' 'source: text, train: data/letters.txt, context: 8,
  stride: 3'
rows_job photos '[flatten, linear]' 'source: images, dir: data/images, size: 12, width: 10,
  maps: [{crop: {size: 13, width: 9, pad: 1}}, flip, {color: {brightness: 0.2}}, normalize]'
rows_job greys '[flatten, linear]' 'source: images, dir: data/images, size: 14, resize: stretch,
  maps: [grey, {resize: {size: 9, width: 17}}, {pad: {pad: 1, value: 3}}]'
rows_job dots '[flatten, linear]' 'source: images, dir: data/images, size: 6, channels: 1'
rows_job arrays '[flatten, linear]' 'source: npy, train: "x=data/x.npy,y=data/y.npy",
  maps: [{crop: {size: 3}}, normalize]'

rows_names='cells words shops notes_word notes_char notes_lower notes_byte items load price
  letters photos greys dots arrays'
declare -A new_rows=([cells]=new.csv [shops]=new.csv [items]=new.jsonl [load]=new_load.csv
    [price]=new.csv [letters]=new_letters.txt [photos]=new_images [greys]=new_images
    [dots]=new_images [arrays]=new.npy)
for name in $rows_names; do run 0 "$tandem" train "$name.yaml" -q --run-dir "$name"; done
mkdir away
mv data away/ # a run stands alone
for name in $rows_names; do
    run 0 "$tandem" export "$name" -o "${name}_net.py"
    run 0 "$tandem" predict "$name" --input "${new_rows[$name]:-plain.csv}" -o "$name.said.npy"
done

cat >rows.py <<'PY'
import ast, csv, json, math, struct
def images():
    return [(w, h, bytes.fromhex(rgb)) for w, h, rgb in json.load(open('images.json'))]
def rows(name):
    if name in ('photos', 'greys', 'dots'):
        return images()
    if name == 'items':
        return [json.loads(line) for line in open('new.jsonl')]
    if name == 'letters':
        return [open('new_letters.txt', newline='').read()]
    if name == 'arrays':
        flat = json.load(open('pixels.json'))
        return [{'x': [flat[20 * i + 5 * k:20 * i + 5 * k + 5] for k in range(4)]}
                for i in range(8)]
    path = {'load': 'new_load.csv'}.get(name, 'new.csv' if name in ('cells', 'shops', 'price')
                                        else 'plain.csv')
    return list(csv.DictReader(open(path, newline='', encoding='utf-8')))
def said(name):
    """Shape and numbers of NAME.said.npy."""
    data = open(name + '.said.npy', 'rb').read()
    n = 10 + struct.unpack('<H', data[8:10])[0]
    shape = ast.literal_eval(data[10:n].decode())['shape']
    return shape, struct.unpack(f'<{math.prod(shape)}f', data[n:])
def compare(name, rows_of_outputs, classes):
    """Outputs, before softmax, against what tandem said."""
    shape, want = said(name)
    got = []
    for y in rows_of_outputs:
        if classes:
            e = [math.exp(v - max(y)) for v in y]
            y = [v / sum(e) for v in e]
        got += y
    assert len(got) == len(want), (name, len(got), shape)
    gap = max(abs(a - b) / max(1, abs(b)) for a, b in zip(got, want))
    print(f'{name}: {len(want)} values, largest difference {gap:.2g}')
    assert gap < 2e-6, (name, gap)
PY
