#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden runs of PyTorch's DistributedDataParallel: makes losses.safetensors beside it.

    python3 make.py

A small CNN with batch norm, 24 steps with SGD and with AdamW in f32, on two ranks over gloo. The
batch of a step has 16 rows; rank 0 trains on the first 8 and rank 1 on the others, so batch norm
sees 8 rows at a time, as it does with `shards: 2` on our side.

    losses.safetensors   "OPTIMIZER", f64 (24): the mean of both ranks' losses in each step

Inputs and first weights are not stored: both sides make them as tests/golden/train/make.py says
(inputs "x0" ... "x3" and "y0" ... "y3", weights as those of resnet there). Step k trains on batch
k mod 4. A deviation of 1e-5 has to mean a mistake: unless the same in f64 agrees within 3e-6,
nothing is written.
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "train"))
from make import ResNet18, classes, deviation, numbers  # noqa: E402

RANKS, ROWS, STEPS, BATCHES = 2, 16, 24, 4
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda params: torch.optim.AdamW(params, 0.004, weight_decay=0.01),
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 3 * 3, 10)
        with torch.no_grad():
            for name, t in self.state_dict().items():
                if t.is_floating_point():
                    t.copy_(ResNet18.first(name, t))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        return self.fc(F.relu(self.norm2(self.conv2(x))).flatten(1))


def work(rank, meeting, optimizer, dtype, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    net = DistributedDataParallel(Net().to(dtype))
    opt = OPTIMIZERS[optimizer](net.parameters())
    own = slice(rank * ROWS // RANKS, (rank + 1) * ROWS // RANKS)
    data = [(numbers(f"x{k}", ROWS, 3, 12, 12)[own].to(dtype), classes(f"y{k}", 10, ROWS)[own])
            for k in range(BATCHES)]
    for step in range(STEPS):
        x, y = data[step % BATCHES]
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out[rank, step] = loss.item()
    dist.barrier()  # nobody leaves while the other is still in a call
    dist.destroy_process_group()


def run(optimizer, dtype):
    out = torch.zeros(RANKS, STEPS, dtype=torch.float64).share_memory_()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (os.path.join(folder, "meet"), optimizer, dtype, out), RANKS)
    return out.mean(dim=0)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    golden = {}
    for name in OPTIMIZERS:
        losses, exact = run(name, torch.float32), run(name, torch.float64)
        off = deviation(losses, exact)
        print(f"{name:6} {losses[0]:.4f} -> {losses[-1]:.4f}; off from f64 by {off:.1e}")
        if off > 3e-6:
            sys.exit("this run magnifies rounding; nothing written")
        golden[name] = losses
    save_file(golden, os.path.join(HERE, "losses.safetensors"),
              metadata={"torch": torch.__version__})
