# SPDX-License-Identifier: Apache-2.0
"""Job files and data of the benchmark models (bench/torch/models.py) for `tandem train`."""
import array
import random
import struct

# per rank: rows of a batch; `unit` of a row that rates are counted in
ROWS = {"mlp": 64, "cnn": 64, "resnet18": 32, "gpt": 8}
UNITS = {"mlp": 1, "cnn": 1, "resnet18": 1, "gpt": 256}
SHAPES = {"mlp": (784,), "cnn": (1, 28, 28), "resnet18": (3, 32, 32)}
SAMPLES, CLASSES, VOCAB, CONTEXT = 2048, 10, 4096, 256
MODELS = {
    "mlp": "{name: mlp}",
    "cnn": "{name: cnn}",
    "resnet18": "{name: resnet, depth: 18, cifar_stem: true}",
    "gpt": f"{{name: gpt2, layers: 6, heads: 6, width: 384, vocab: {VOCAB}, context: {CONTEXT}}}",
}
SGD, ADAMW = "{name: sgd, lr: 0.01, momentum: 0.9}", "{name: adamw, lr: 3.0e-4}"


def write_npy(path, shape, kind, values):
    """`values` repeated until the array is full."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    count = 1
    for n in shape:
        count *= n
    data = values.tobytes()
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(data * (count // len(values)))


def make(folder):
    """Writes NAME.yaml for every model, and its data; rows of the batch and ranks are --set."""
    draw = random.Random(1)
    labels = array.array("i", (i % CLASSES for i in range(SAMPLES)))
    write_npy(folder / "y.npy", (SAMPLES,), "<i4", labels)
    for name, shape in SHAPES.items():
        size = 1
        for n in shape:
            size *= n
        values = array.array("f", (draw.uniform(-1, 1) for _ in range(size * 32)))
        write_npy(folder / f"{name}.npy", (SAMPLES, *shape), "<f4", values)
    tokens = array.array("H", (draw.randrange(VOCAB) for _ in range(1024 * CONTEXT + 1)))
    with open(folder / "gpt_train.bin", "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + tokens.tobytes())
    for name, model in MODELS.items():
        gpt = name == "gpt"
        data = (f"{{source: tokens, context: {CONTEXT}, vocab: {VOCAB}, dir: {folder}}}" if gpt else
                f'{{source: npy, dir: {folder}, train: "x={name}.npy,y=y.npy", '
                f"split: {{valid: 0}}}}")
        (folder / f"{name}.yaml").write_text(
            f"name: {name}\nmodel: {model}\ndata: {data}\n"
            f"train: {{optimizer: {ADAMW if gpt else SGD}, eval: {{every: never}}}}\n"
            f"parallel: {{threads: 1}}\ncheckpoint: end\n"
            f"log: {{tensorboard: false, report: false, dir: {folder}}}\n")
