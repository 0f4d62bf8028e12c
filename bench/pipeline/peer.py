# SPDX-License-Identifier: Apache-2.0
"""The side of PyTorch in make bench-pipeline: torch.distributed.pipelining over gloo, one process
per stage, one thread each. Serves until its input ends: a line {"model", "schedule", "steps"} asks
for so many steps ("schedule" null: one process without a pipeline), and is answered with a line
{"seconds": [of each step]} or {"error": text}."""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import pipelining

VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 27, 128, 256, 4, 8
TWO_CHUNKS = ("Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


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
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return times


def stepper_alone(o, model):
    net = nn.Sequential(*layers_of(model))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = data_of(model, o.batch[model])

    def step():
        optimizer.zero_grad()
        for a, b in zip(x.chunk(o.micro_batches), y.chunk(o.micro_batches)):
            (loss_of(net(a), b) / o.micro_batches).backward()
        optimizer.step()

    return step


def stepper(o, rank, model, name):
    """One step of a pipeline with this schedule."""
    each = 2 if name in TWO_CHUNKS else 1
    chunks = chunks_of(layers_of(model), o.stages * each)
    numbers = [rank]
    if each > 1:
        numbers += [2 * o.stages - 1 - rank if name in V_SHAPED else rank + o.stages]
    mine = [chunks[i] for i in numbers]
    stages = [pipelining.PipelineStage(c, i, o.stages * each, torch.device("cpu"))
              for c, i in zip(mine, numbers)]
    schedule = pipelining.schedules.get_schedule_class(name)(
        stages if each > 1 else stages[0], o.micro_batches, loss_fn=loss_of)
    optimizer = torch.optim.SGD([p for c in mine for p in c.parameters()], lr=0.01)
    x, y = data_of(model, o.batch[model])
    args = (x,) if 0 in numbers else ()
    target = dict(target=y) if o.stages * each - 1 in numbers else {}

    def step():
        optimizer.zero_grad()
        schedule.step(*args, **target)
        optimizer.step()
        dist.barrier()

    return step


def rank_main(rank, o, orders, answers):
    """orders: by rank."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=o.stages)
    steppers = {}
    while (order := orders[rank].get()) is not None:
        model, name, steps = order
        try:
            if order[:2] not in steppers:
                steppers[order[:2]] = stepper(o, rank, model, name)
            answers.put((rank, timed(steps, steppers[order[:2]]), None))
        except Exception as e:
            answers.put((rank, None, f"{type(e).__name__}: {e}"))
    dist.destroy_process_group()


def serve(o):
    context = mp.get_context("spawn")
    orders = [context.SimpleQueue() for _ in range(o.stages)]
    answers = context.SimpleQueue()
    ranks = mp.spawn(rank_main, args=(o, orders, answers), nprocs=o.stages, join=False)
    alone = {}
    for line in sys.stdin:
        order = json.loads(line)
        model, name, steps = order["model"], order["schedule"], order["steps"]
        if name is None:
            alone[model] = alone.get(model) or stepper_alone(o, model)
            reply = {"seconds": timed(steps, alone[model])}
        else:
            for q in orders:
                q.put((model, name, steps))
            got = {rank: (seconds, error) for rank, seconds, error in
                   (answers.get() for _ in range(o.stages))}
            failed = [error for _, error in got.values() if error]
            reply = {"error": failed[0]} if failed else {"seconds": got[0][0]}
        print(json.dumps(reply), flush=True)
    for q in orders:
        q.put(None)
    ranks.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stages", type=int, default=2)
    p.add_argument("--micro-batches", type=int, default=8)
    p.add_argument("--batch", type=json.loads, help='rows of a batch: {"mlp": 256}')
    o = p.parse_args()
    torch.set_num_threads(1)
    serve(o)


if __name__ == "__main__":
    main()
