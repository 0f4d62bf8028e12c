# SPDX-License-Identifier: Apache-2.0
# What the tests of `tandem export` share; sourced after lib.sh. Afterwards there are models with
# every kind of layer, NAME of $names and table: NAME.run, and of each NAME.onnx, NAME_net.py and
# NAME.safetensors; what `tandem predict` says: NAME.said.npy, table.out.csv; and npy.py, which
# compares with that.
# shellcheck shell=bash disable=SC2154,SC2086 # lib.sh has them; names
python3 - <<'PY' || fail "no samples"
import random, struct
random.seed(3)
def npy(name, dtype, shape, values):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(117) + "\n"
    form = {'<f4': 'f', '<i4': 'i', '|u1': 'B'}[dtype]
    with open(name, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode())
        f.write(struct.pack(f'<{len(values)}{form}', *values))
n = 40
npy('images.npy', '<f4', (n, 2, 9, 8), [random.gauss(0, 1) for _ in range(n * 144)])
npy('bytes.npy', '|u1', (n, 9, 8), [random.randrange(256) for _ in range(n * 72)])
npy('ids.npy', '<i4', (n, 12), [random.randrange(20) for _ in range(n * 12)])
npy('y.npy', '<i4', (n,), [i % 3 for i in range(n)])
with open('table.csv', 'w') as f:
    f.write('height,city,species\n')
    for i in range(60):
        city = random.choice(['Rome', 'Oslo'])
        f.write(f"{random.gauss(10 * (i % 3), 1):.3f},{city},{'abc'[i % 3]}\n")
PY

job() { # NAME X MODEL
    cat >"$1.yaml" <<YAML
name: $1
model: $3
data: {source: npy, train: "x=$2,y=y.npy", test: "x=$2,y=y.npy"}
train: {batch: 8, steps: 6, micro_batches: 2, optimizer: {name: adamw, lr: 0.01}}
log: {tensorboard: false, report: false}
YAML
}
job images images.npy '[{conv2d: 6, kernel: [3, 4], padding: same}, {batch_norm: , act: relu},
  {max_pool: 3, stride: 2, padding: 1}, {residual: [{conv2d: 6, padding: 1, groups: 2}, silu]},
  {group_norm: 2}, {avg_pool: 2, stride: 1, padding: 1},
  {conv2d: 4, kernel: [1, 2], stride: [2, 1], dilation: 2, bias: false, act: gelu},
  leaky_relu, flatten, {linear: 16, act: gelu_tanh}, {dropout: 0.2}, softplus,
  {linear: 8, act: tanh, as: a}, sigmoid, {mul: a}, {concat: [a]}, linear]'
job bytes bytes.npy '[{conv2d: 4, act: relu}, global_avg_pool, {linear: 6, bias: false}, linear]'
job sequence ids.npy '[{embedding: 8, vocab: 20}, position,
  {conv1d: 6, kernel: 4, padding: same, act: silu},
  {lstm: 5, layers: 2, bidirectional: true}, {gru: 4, bidirectional: true}, layer_norm,
  {attention: 2, causal: true}, rms_norm, {transformer_block: 2, ff: 12}, {mean: 1}, linear]'
job last ids.npy '[{embedding: 6, vocab: 20}, {gru: 5}, {permute: [2, 1]}, {reshape: [12, 5]},
  last, linear]'
job bag ids.npy '[{bag: 6, vocab: 20, padding: 3}, linear]'
cat >table.yaml <<'YAML'
name: table
model: [{linear: 8, act: relu}, linear]
data: {source: csv, train: table.csv, label: species, maps: [normalize]}
train: {batch: 8, epochs: 30, optimizer: {name: adamw, lr: 0.03}}
log: {tensorboard: false, report: false}
YAML
names='images bytes sequence last bag'
for name in $names table; do
    run 0 "$tandem" train $name.yaml -q --run-dir $name.run
    run 0 "$tandem" export $name.run --onnx $name.onnx
    has "$name.onnx: the model of step [0-9]* for ONNX"
    run 0 "$tandem" export $name.run -o ${name}_net.py
    run 0 "$tandem" export $name.run -o $name.safetensors
    cmp -s $name.safetensors ${name}_net.safetensors || fail "$name: other weights"
done
for name in $names; do run 0 "$tandem" predict $name.run --part test -o $name.said.npy; done
run 0 "$tandem" predict table.run --input table.csv -o table.out.csv

cat >npy.py <<'PY'
import numpy as np
X = dict(images='images', bytes='bytes', sequence='ids', last='ids', bag='ids')
def check(name, run):
    x, want = np.load(X[name] + '.npy'), np.load(name + ".said.npy")
    y = np.concatenate([run(x[:7]), run(x[7:])]).astype(np.float64) # for any number of rows
    y = np.exp(y - y.max(-1, keepdims=True))
    gap = abs(y / y.sum(-1, keepdims=True) - want).max()
    print(f'{name}: largest difference {gap:.2g}')
    assert gap < 2e-6, name
PY
