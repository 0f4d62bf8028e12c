#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# What a run leaves loads in other people's programs: checkpoints and exports with Python's
# safetensors and numpy, event files with TensorBoard's own reader. The environment with these
# packages is made on first use in BUILD/venv-readers; where it cannot be made (no network), the
# test says so and is skipped.
. "$(dirname "$0")/lib.sh"
venv=$build/venv-readers

make_venv() {
    python3 -m venv "$venv" && limited "$venv/bin/pip" install --quiet \
        --disable-pip-version-check --retries 1 -r "$source/tests/e2e/readers.txt" &&
        touch "$venv/ready"
}
exec 9>"$venv.lock"
flock 9 # who comes second waits for what the first one makes
if [ ! -e "$venv/ready" ] && ! make_venv >out 2>&1; then
    echo "test_readers: skipped: the Python environment cannot be made: $(tail -n 1 out)"
    exit 77
fi
exec 9>&-
cat >job.yaml <<'END'
name: read
model: [{conv2d: 4, kernel: 3}, {batch_norm: , act: relu}, flatten, linear]
data: {source: digits, count: 320, split: {valid: 0.2, test: 0.2}}
train: {batch: 32, steps: 30, optimizer: adamw, eval: {every: 10}}
checkpoint: {every: 10}
END
run 0 "$tandem" train job.yaml -q
# A run that is cut short and goes on: TensorBoard must see each step once.
run 0 "$tandem" train job.yaml -q --set train.steps=17
run 0 "$tandem" train job.yaml -q --resume
run 0 "$tandem" export runs/read-0001 -o m.npz
run 0 "$tandem" export runs/read-0001 -o m.safetensors
run 0 "$tandem" predict runs/read-0001 -o p.npy
"$venv/bin/python" - <<'END' || fail "what others read is not what was written"
import glob, json
import numpy as np
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

latest = open("runs/read-0001/checkpoints/latest").read().strip()
model = load_file(f"runs/read-0001/checkpoints/{latest}/model.safetensors")
optimizer = load_file(f"runs/read-0001/checkpoints/{latest}/optimizer.safetensors")
assert model["conv2d1.weight"].shape == (4, 1, 3, 3) and model["conv2d1.weight"].dtype == np.float32
assert any("running_mean" in name for name in model), list(model)
assert all(np.isfinite(v).all() for v in model.values())
assert optimizer["exp_avg/linear1.weight"].shape == model["linear1.weight"].shape, list(optimizer)
exported, npz = load_file("m.safetensors"), np.load("m.npz")
assert set(exported) == set(model) == set(npz.files)
for name, value in model.items():
    assert (exported[name] == value).all() and (npz[name] == value).all(), name
p = np.load("p.npy")
assert p.shape[1] == 10 and np.allclose(p.sum(1), 1, atol=1e-5)

for run, files in (("read-0001", 1), ("read-0002", 2)):
    path = f"runs/{run}"
    assert len(glob.glob(path + "/events.out.tfevents.*")) == files, run
    events = EventAccumulator(path, size_guidance={"histograms": 0}) # all of them
    events.Reload()
    lines = [json.loads(line) for line in open(path + "/metrics.jsonl")]
    tags = events.Tags()["scalars"]
    for tag in ("train/loss", "train/lr", "train/samples_per_second", "valid/accuracy",
                "test/accuracy"):
        assert tag in tags, (tag, tags)
    loss = events.Scalars("train/loss")
    assert [s.step for s in loss] == list(range(1, 31)), [s.step for s in loss]
    kept = [line["loss"] for line in lines if line["kind"] == "step"]
    assert np.allclose([s.value for s in loss], kept, rtol=1e-6)
    valid = [line for line in lines if line["kind"] == "eval" and line["part"] == "valid"]
    # Params at each validation, and the graph with its shapes.
    histograms = events.Histograms("params/linear1.weight")
    assert [h.step for h in histograms] == [line["step"] for line in valid], histograms
    last = histograms[-1].histogram_value
    weight = model["linear1.weight"].astype(np.float64)
    if run == "read-0001":
        assert last.num == weight.size == sum(last.bucket), (last.num, weight.size)
        assert (last.min, last.max) == (weight.min(), weight.max())
        assert np.isclose(last.sum, weight.sum()) and last.bucket_limit[-1] == last.max
    graph = events.Graph()
    nodes = {n.name: n for n in graph.node}
    conv = next(n for n in graph.node if n.op == "conv2d")
    assert [i for i in conv.input if nodes[i].op == "input"] and len(conv.input) >= 2, conv
    shape = conv.attr["_output_shapes"].list.shape[0].dim
    assert [d.size for d in shape][1:2] == [4] and len(shape) == 4, conv
    assert all(i.split(":")[0] in nodes for n in graph.node for i in n.input)
    seen = events.Scalars("valid/accuracy")
    assert [s.step for s in seen] == [line["step"] for line in valid], (run, seen)
END
