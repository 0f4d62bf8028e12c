#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# ONNX files of a trained model give the predictions of `tandem predict` in onnxruntime, for every
# kind of layer, and for rows of a table that an exported module made samples of.
. "$(dirname "$0")/lib.sh"
venv=$build/venv-onnx
make_venv() {
    python3 -m venv "$venv" && limited "$venv/bin/pip" install --quiet --disable-pip-version-check \
        --retries 1 -r "$source/tests/e2e/onnx.txt" && touch "$venv/ready"
}
exec 9>"$venv.lock"
flock 9
[ -e "$venv/ready" ] || make_venv >out 2>&1 ||
    { echo "skipped: no onnxruntime: $(tail -n 1 out)"; exit 77; }
exec 9>&-
. "$source/tests/e2e/export.sh"

cat >ort.py <<'PY'
import csv, sys
import numpy, onnxruntime
from npy import check
for name in sys.argv[1:]:
    s = onnxruntime.InferenceSession(name + '.onnx')
    check(name, lambda x: s.run(None, {'x': x})[0])
import table_net
want = [r['prediction'] for r in csv.DictReader(open('table.out.csv'))]
samples = table_net.samples(csv.DictReader(open('table.csv')))
feed = {n: numpy.array(v, 'f4').reshape([-1] + shape) for n, (_, shape, v) in samples.items()}
y = onnxruntime.InferenceSession('table.onnx').run(None, feed)[0]
classes = table_net.classes_of(list(y.shape))
assert table_net.named(classes, y.argmax(-1).tolist()) == want
PY
# shellcheck disable=SC2086 # names
run 0 "$venv/bin/python" ort.py $names
cat out
