# SPDX-License-Identifier: Apache-2.0
"""The side of PyTorch in make bench-pipeline: torch.distributed.pipelining over gloo, one process
per stage, one thread each. Prints {"samples_per_second": ...} of the median step."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import pipelining

WARM_UP = 3
VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 27, 128, 256, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2)
                   for y in self.qkv(self.ln_1(x)).split(WIDTH, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))


def layers_of(model):
    if model == "mlp":
        widths = [784] + [1024] * 15
        hidden = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(widths, widths[1:])]
        return hidden + [nn.Linear(1024, 10)]
    return [Embedding()] + [Block() for _ in range(LAYERS)] + [
        nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False))]


def data_of(model, batch):
    if model == "mlp":
        return torch.randn(batch, 784), torch.randint(10, (batch,))
    ids = torch.randint(VOCAB, (batch, CONTEXT))
    return ids, torch.randint(VOCAB, (batch, CONTEXT))


def loss_of(output, target):
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def chunks_of(layers, n):
    """Equal numbers of layers; the ends count as one."""
    bounds = [len(layers) * i // n for i in range(n + 1)]
    return [nn.Sequential(*layers[a:b]) for a, b in zip(bounds, bounds[1:])]


def timed(steps, step):
    times = []
    for i in range(steps):
        begin = time.perf_counter()
        step()
        if i >= WARM_UP:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def alone(o):
    torch.set_num_threads(1)
    net = nn.Sequential(*layers_of(o.model))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = data_of(o.model, o.batch)

    def step():
        optimizer.zero_grad()
        for a, b in zip(x.chunk(o.micro_batches), y.chunk(o.micro_batches)):
            (loss_of(net(a), b) / o.micro_batches).backward()
        optimizer.step()

    return timed(o.steps, step)


def rank_main(rank, o, result):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    dist.init_process_group("gloo", rank=rank, world_size=o.stages)
    each = 2 if o.schedule.startswith("Interleaved") else 1
    chunks = chunks_of(layers_of(o.model), o.stages * each)
    mine = [chunks[rank + o.stages * k] for k in range(each)]
    stages = [pipelining.PipelineStage(c, rank + o.stages * k, o.stages * each,
                                       torch.device("cpu"))
              for k, c in enumerate(mine)]
    schedule = pipelining.schedules.get_schedule_class(o.schedule)(
        stages if each > 1 else stages[0], o.micro_batches, loss_fn=loss_of)
    optimizer = torch.optim.SGD([p for c in mine for p in c.parameters()], lr=0.01)
    x, y = data_of(o.model, o.batch)
    args = (x,) if rank == 0 else ()
    target = dict(target=y) if rank == o.stages - 1 else {}

    def step():
        optimizer.zero_grad()
        schedule.step(*args, **target)
        optimizer.step()
        dist.barrier()

    seconds = timed(o.steps, step)
    if rank == 0:
        result.value = seconds
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=("mlp", "gpt"))
    p.add_argument("--schedule")
    for name in ("steps", "batch", "micro-batches", "stages"):
        p.add_argument(f"--{name}", type=int)
    o = p.parse_args()
    if o.schedule == "none":
        seconds = alone(o)
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29641")
        result = mp.get_context("spawn").Value("d", 0.0)
        mp.spawn(rank_main, args=(o, result), nprocs=o.stages)
        seconds = result.value
    print(json.dumps({"samples_per_second": o.batch / seconds}))


if __name__ == "__main__":
    main()
