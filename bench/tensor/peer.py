# SPDX-License-Identifier: Apache-2.0
"""The side of PyTorch in make bench-tensor: torch.distributed.tensor over gloo, one process per
rank, one thread each. Prints {"samples_per_second": ...} of the median step."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

WARM_UP = 3
VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 27, 128, 256, 4, 8


class Block(nn.Module):
    """q, k and v apart, as torch.distributed.tensor wants them."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.ln_1(x)
        q, k, v = (f(y).view(b, t, -1, WIDTH // HEADS).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(nn.functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def mlp():
    widths = [784] + [1024] * 15
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def cut(model, net, mesh):
    """Pairs of layers by outputs and inputs; attention by heads."""
    if model == "mlp":
        linears = [str(i) for i, layer in enumerate(net) if isinstance(layer, nn.Linear)][:-1]
        plan = {name: ColwiseParallel() if i % 2 == 0 else RowwiseParallel()
                for i, name in enumerate(linears)}
        if len(linears) % 2:
            from torch.distributed.tensor import Replicate
            plan[linears[-1]] = ColwiseParallel(output_layouts=Replicate())
        return parallelize_module(net, mesh, plan)
    for block in net.blocks:
        parallelize_module(block, mesh, {
            "q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(),
            "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
    return net


def data_of(model, batch):
    if model == "mlp":
        return torch.randn(batch, 784), torch.randint(10, (batch,))
    return torch.randint(VOCAB, (batch, CONTEXT)), torch.randint(VOCAB, (batch, CONTEXT))


def measure(o, net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    torch.manual_seed(1)
    x, y = data_of(o.model, o.batch)
    times = []
    for i in range(o.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        if i >= WARM_UP:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def rank_main(rank, o, result):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    dist.init_process_group("gloo", rank=rank, world_size=o.ranks)
    net = mlp() if o.model == "mlp" else Gpt()
    seconds = measure(o, cut(o.model, net, init_device_mesh("cpu", (o.ranks,))))
    if rank == 0:
        result.value = seconds
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=("mlp", "gpt"))
    for name in ("steps", "batch", "ranks"):
        p.add_argument(f"--{name}", type=int)
    o = p.parse_args()
    if o.ranks == 1:
        torch.set_num_threads(1)
        seconds = measure(o, mlp() if o.model == "mlp" else Gpt())
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29643")
        result = mp.get_context("spawn").Value("d", 0.0)
        mp.spawn(rank_main, args=(o, result), nprocs=o.ranks)
        seconds = result.value
    print(json.dumps({"samples_per_second": o.batch / seconds}))


if __name__ == "__main__":
    main()
