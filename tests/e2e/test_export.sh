#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A trained model as an ONNX file and as a PyTorch module, without other programs: the file is read
# by a reader of a few lines, each node's inputs are there before it, the weights are the
# checkpoint's; what cannot be exported. test_export_rows has what the module makes of rows,
# test_export_onnx and test_export_torch compare predictions.
. "$(dirname "$0")/lib.sh"
. "$source/tests/e2e/export.sh"

# Layers in both directions, over time, and `same` give the same bits on two ranks.
run 0 "$tandem" train sequence.yaml --run-dir one
want=$(digest)
run 0 "$tandem" train sequence.yaml --run-dir two -n 2
same "two ranks"

# The file as such.
python3 - $names table <<'PY' || fail "the ONNX files are not sound"
import json, sys
def fields(data):
    at = 0
    def varint():
        nonlocal at
        v = shift = 0
        while True:
            b = data[at]; at += 1
            v |= (b & 127) << shift; shift += 7
            if b < 128:
                return v
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            n = {1: 8, 5: 4}.get(key & 7)
            n = varint() if n is None else n
            yield key >> 3, data[at:at + n]; at += n
    assert at == len(data)
def one(data, k):
    return [v for f, v in fields(data) if f == k]
for name in sys.argv[1:]:
    model = open(name + '.onnx', 'rb').read()
    (graph,), (opset,) = one(model, 7), one(model, 8)
    assert one(opset, 2) == [17] and one(model, 1) == [8]
    known = {one(v, 1)[0] for v in one(graph, 11)}
    weights = {one(t, 8)[0].decode(): one(t, 9)[0] for t in one(graph, 5)}
    assert len(weights) == len(one(graph, 5)), 'a name twice'
    known |= {w.encode() for w in weights}
    for node in one(graph, 1):
        for i in one(node, 1):
            assert i in known, (name, i)
        for o in one(node, 2):
            assert o not in known, (name, o)
            known.add(o)
    assert b'output' in known and [one(v, 1)[0] for v in one(graph, 12)] == [b'output']
    data = open(name + '.safetensors', 'rb').read()
    n = int.from_bytes(data[:8], 'little')
    for w, t in json.loads(data[8:8 + n]).items():
        if w in weights:
            a, b = t['data_offsets']
            assert weights[w] == data[8 + n:][a:b], (name, w)
PY

# What cannot be.
run 2 "$tandem" export images.run
has 'expected --output FILE.safetensors, FILE.npz, FILE.onnx or FILE.py'
run 2 "$tandem" export images.run -o model.txt
has 'expected a name ending in .safetensors, .npz, .onnx or .py'
run 2 "$tandem" export images.run --onnx a.onnx --python b.py
has 'one file at a time'
[ ! -e a.onnx ] || fail "a file is left"

# A name is a text of the module, whatever it says.
odd="it's \"odd\"'] or open('made', 'w') or w['"
sed "s/^model: .*/model: [{linear: 8, name: '${odd//\'/\'\'}'}, linear]/" table.yaml >odd.yaml
run 0 "$tandem" train odd.yaml --run-dir odd --set train.epochs=1
run 0 "$tandem" export odd -o odd.py
python3 - "$odd.weight" <<'PY' || fail "the module does not have the name of the layer as a text"
import ast, sys
texts = [n.value for n in ast.walk(ast.parse(open('odd.py').read())) if isinstance(n, ast.Constant)]
sys.exit(texts.count(sys.argv[1]) < 2)
PY
