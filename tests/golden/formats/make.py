#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that TensorFlow and pyarrow wrote, for our readers (test_golden_formats.c), and what is in
them:

    numbers.tfrecord   examples of floats and int64 (one of them negative), a text, a label
    images.tfrecord    PNG images of 6 x 5 pixels
    packed.tfrecord    numbers.tfrecord, gzip-compressed: refused
    *.parquet          one table in several encodings, codecs and versions of pages (WAYS)
    nested.parquet, brotli.parquet, split.parquet, int96.parquet
                       what our reader refuses
    expected.json      the values; null: missing

    python3 tests/golden/formats/make.py        (tensorflow-cpu 2.21.0, pyarrow 26.0.1)
"""
import decimal
import json
import os
import random
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import tensorflow as tf  # noqa: E402

HERE = Path(__file__).resolve().parent
ROWS = 70
WAYS = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "snappy": {"compression": "snappy", "row_group_size": 30},
    "gzip": {"compression": "gzip", "data_page_version": "2.0", "data_page_size": 64},
    "zstd": {"compression": "zstd", "data_page_version": "2.0"},
    "delta": {"compression": "zstd", "use_dictionary": False, "column_encoding": {
        "i32": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "gaps": "DELTA_BINARY_PACKED",
        "text": "DELTA_BYTE_ARRAY", "words": "DELTA_LENGTH_BYTE_ARRAY", "flag": "RLE"}},
}
random.seed(8)


# ---- TFRecord ------------------------------------------------------------------------------------

def floats(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def ints(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def texts(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def write_examples(name, examples, options=None):
    with tf.io.TFRecordWriter(str(HERE / name), options) as f:
        for features in examples:
            f.write(tf.train.Example(features=tf.train.Features(feature=features))
                    .SerializeToString(deterministic=True))


def tfrecords():
    rows, examples = [], []
    for i in range(20):
        reals = np.array([random.gauss(0, 1), random.gauss(0, 1e-3), 1e30 * random.random()],
                         np.float32)
        whole = [random.randrange(-1 << 20, 1 << 20), -i]
        label = i % 4
        examples.append({"reals": floats(reals), "whole": ints(whole), "label": ints([label]),
                         "note": texts(b"row %d" % i)})
        # side by side in the order of their names, as f32
        rows.append({"x": [float(v) for v in [*reals, *whole]], "y": label})
    write_examples("numbers.tfrecord", examples)
    write_examples("packed.tfrecord", examples[:2], "GZIP")
    images = []
    pictures = np.random.default_rng(2).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    write_examples("images.tfrecord", [
        {"image/encoded": texts(tf.io.encode_png(p).numpy()), "image/class/label": ints([i % 2])}
        for i, p in enumerate(pictures)])
    for i, p in enumerate(pictures):  # planes
        images.append({"x": p.transpose(2, 0, 1).ravel().tolist(), "y": i % 2})
    return {"numbers": rows, "images": images}


# ---- Parquet -------------------------------------------------------------------------------------

def gaps(values):
    return [None if random.random() < 0.3 else v for v in values]


def parquet():
    n = range(ROWS)
    columns = {
        "i32": (pa.int32(), [random.randrange(-1 << 31, 1 << 31) for _ in n]),
        "i64": (pa.int64(), [random.randrange(-1 << 62, 1 << 62) >> i % 60 for i in n]),
        "u32": (pa.uint32(), [random.randrange(1 << 32) for _ in n]),
        "u64": (pa.uint64(), [random.randrange(1 << 64) for _ in n]),
        "i8": (pa.int8(), [random.randrange(-128, 128) for _ in n]),
        "f32": (pa.float32(), [float(np.float32(random.gauss(0, 1))) for _ in n]),
        "f64": (pa.float64(), [random.gauss(0, 1) * 10 ** random.randrange(-9, 9) for _ in n]),
        "flag": (pa.bool_(), [random.random() < 0.4 for _ in n]),
        "text": (pa.string(), [f"{random.choice(['röm', 'rome', 'romont'])}{i // 9}" for i in n]),
        "words": (pa.string(), gaps([random.choice(["", "a", "bb", "日本"]) for _ in n])),
        "fixed": (pa.binary(3), [random.choice([b"abc", b"xyz", b"a c"]) for _ in n]),
        "money": (pa.decimal128(9, 2), gaps([decimal.Decimal(random.randrange(-10 ** 6, 10 ** 6))
                                             / 100 for _ in n])),
        "gaps": (pa.int64(), gaps([random.randrange(100) for _ in n])),
        "holes": (pa.float32(), gaps([float(np.float32(random.random())) for _ in n])),
        "flags": (pa.bool_(), gaps([random.random() < 0.5 for _ in n])),
        "none": (pa.float64(), [None] * ROWS),
        "certain": (pa.int32(), [i * i for i in n]),
    }
    fields = [pa.field(name, kind, nullable=name != "certain")
              for name, (kind, _) in columns.items()]
    table = pa.table([pa.array(v, kind) for kind, v in columns.values()], pa.schema(fields))
    for name, options in WAYS.items():
        pq.write_table(table, HERE / f"{name}.parquet", store_decimal_as_integer=True, **options)
    one = pa.table({"a": pa.array([1.5, 2.5, 3.5])})
    pq.write_table(pa.table({"a": [[1, 2], [3]], "b": [1, 2]}), HERE / "nested.parquet")
    pq.write_table(one, HERE / "brotli.parquet", compression="brotli")
    pq.write_table(one, HERE / "split.parquet", use_dictionary=False,
                   column_encoding={"a": "BYTE_STREAM_SPLIT"})
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.timestamp("ns"))}), HERE / "int96.parquet",
                   use_deprecated_int96_timestamps=True)
    kinds = {pa.uint64(): str, pa.decimal128(9, 2): "{:.2f}".format, pa.bool_(): int,
             pa.binary(3): lambda v: v.decode()}
    return {name: [None if v is None else kinds.get(kind, lambda x: x)(v) for v in values]
            for name, (kind, values) in columns.items()}


def main():
    expected = {"tfrecord": tfrecords(), "ways": list(WAYS), "columns": parquet()}
    (HERE / "expected.json").write_text(
        json.dumps(expected, ensure_ascii=False, separators=(",", ": "))
        .replace('],"', '],\n"').replace('},{', '},\n{') + "\n")


main()
