# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DataLoader at the work of loader.c: the same files, batches and arithmetic.

    loader.py --work images|text|folder|parquet --path PATH --threads WORKERS --seconds S
              [--batched]

Datasets are written as PyTorch's own examples do: images stay bytes in a tensor, __getitem__
normalises one of them; a text is a tensor of bytes, __getitem__ cuts a window and its successor.
With --batched they also have __getitems__, which makes a whole batch with a few tensor operations.
A folder of images is torchvision's ImageFolder with RandomResizedCrop, a Parquet file is read by
pyarrow's iter_batches, whose columns become a tensor; these two are read in whole passes, each from
opening, and the time is that of the processor: of this process and its workers.
"""
import argparse
import json
import os
import struct
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BATCH, CONTEXT = 64, 256


def read_idx(path):
    data = path.read_bytes()
    ndim = data[3]
    shape = struct.unpack(f">{ndim}I", data[4:4 + 4 * ndim])
    elements = np.frombuffer(data, np.uint8, offset=4 + 4 * ndim)
    return torch.from_numpy(elements.reshape(shape).copy())


class Images(Dataset):
    def __init__(self, folder):
        self.x = read_idx(folder / "train-images-idx3-ubyte")
        self.y = read_idx(folder / "train-labels-idx1-ubyte").long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i].float().div_(255).sub_(0.1307).div_(0.3081).unsqueeze_(0), self.y[i]


class BatchedImages(Images):
    def __getitems__(self, indices):
        i = torch.tensor(indices)
        return self.x[i].float().div_(255).sub_(0.1307).div_(0.3081).unsqueeze_(1), self.y[i]


class Text(Dataset):
    def __init__(self, path):
        self.tokens = torch.from_numpy(np.frombuffer(path.read_bytes(), np.uint8).copy())

    def __len__(self):
        return len(self.tokens) - CONTEXT

    def __getitem__(self, i):
        window = self.tokens[i:i + CONTEXT + 1].long()
        return window[:-1], window[1:]


class BatchedText(Text):
    def __getitems__(self, indices):
        starts = torch.tensor(indices).unsqueeze_(1)
        window = self.tokens[starts + torch.arange(CONTEXT + 1)].long()
        return window[:, :-1], window[:, 1:]


def used():
    """Seconds of the processor: of this process, and of the workers that have ended."""
    t = os.times()
    return time.process_time() + t.children_user + t.children_system


def folder(path, workers):
    """One pass over the images."""
    from torchvision import datasets, transforms
    images = datasets.ImageFolder(path / "train", transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.ToTensor(),
        transforms.Normalize([0.1307] * 3, [0.3081] * 3)]))
    for x, y in DataLoader(images, batch_size=BATCH, shuffle=True, num_workers=workers):
        yield len(y), float(x[0].flatten()[0]) + float(x[-1].flatten()[-1])


def parquet(path, _):
    """One pass over the rows, with one thread."""
    import pyarrow
    import pyarrow.parquet
    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(BATCH, use_threads=False):
        columns = [torch.from_numpy(c.to_numpy()) for c in batch.columns]
        x, y = torch.stack(columns[:-1], 1).float(), columns[-1].float()
        yield len(y), float(x[-1, -1]) + float(y[-1])


def passes(one, path, workers, seconds):
    """Whole passes; the first, which loads libraries, does not count."""
    rows, total, began = 0, 0.0, None
    while began is None or used() - began < seconds:
        for n, value in one(path, workers):
            rows += n
            total += value
        if began is None:
            rows, began = 0, used()
    return {"per_second": rows / (used() - began), "sum": total}


def peer(work):
    if work == "parquet":
        import pyarrow
        return f"pyarrow {pyarrow.__version__} iter_batches"
    version = torch.__version__.split("+")[0]
    if work == "folder":
        import torchvision
        return f"torchvision {torchvision.__version__.split('+')[0]} ImageFolder, PyTorch {version}"
    return f"PyTorch {version} DataLoader"


PASSES = {"folder": folder, "parquet": parquet}
WORK = {("images", False): Images, ("images", True): BatchedImages, ("text", False): Text,
        ("text", True): BatchedText}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="images")
    parser.add_argument("--path", type=Path)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--batched", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if options.work in PASSES:
        print(json.dumps(passes(PASSES[options.work], options.path, options.threads,
                                options.seconds) | {"peer": peer(options.work)}), flush=True)
        return
    began = time.monotonic()
    dataset = WORK[options.work, options.batched](options.path)
    open_s = time.monotonic() - began
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=options.threads,
                        collate_fn=(lambda batch: batch) if options.batched else None)
    rows, total, batches = 0, 0.0, iter(loader)
    next(batches)  # starts the workers
    began = time.monotonic()
    while time.monotonic() - began < options.seconds:
        x, _ = next(batches, (None, None))
        if x is None:
            batches = iter(loader)
            continue
        total += float(x[0].flatten()[0]) + float(x[-1].flatten()[-1])
        rows += len(x)
    elapsed = time.monotonic() - began
    print(json.dumps({"per_second": rows / elapsed, "open_s": open_s, "sum": total,
                      "peer": peer(options.work)}), flush=True)


main()
