# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch DDP over gloo, told what to do by bench/ddp/run.

    peer.py RANK RANKS MEETING       (MEETING: a file that all ranks can reach)

Reads one JSON object per line and answers with one. Keys of a request:

    mode        step      train with DDP: milliseconds of a step
                compute   the same without DDP: what a rank does alone
                comm      all_reduce of the gradients in DDP's buckets, nothing else
    model, precision, seconds
    compile, channels_last, bucket_mb, static_graph, bucket_view, ftz, pin: ways to do it

Processes are kept for many requests, so that a variant costs a second and not the import of
PyTorch. Every mode but compute is a request to all ranks at once.
"""
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "torch"))
from models import MODELS  # noqa: E402

WARM_UP, LEAST, MOST = 3, 4, 5000


def pin(rank, wanted):
    """All threads of this process, gloo's too, on one processor, or on all."""
    cores = sorted(ALL_CORES)
    to = {cores[rank % len(cores)]} if wanted else ALL_CORES
    for task in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(task), to)
        except ProcessLookupError:
            pass  # a thread that has ended meanwhile


def trainer(request, rank):
    """A function that makes one step."""
    make, make_x, classes, y_shape, _, optimizer, lr = MODELS[request["model"]]
    torch.manual_seed(1)
    model = make()
    torch.manual_seed(2 + rank)
    x, y = make_x(), torch.randint(classes, y_shape)
    if request["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    run = model
    if request["mode"] == "step":
        run = DistributedDataParallel(model, bucket_cap_mb=request["bucket_mb"],
                                      static_graph=request["static_graph"],
                                      gradient_as_bucket_view=request["bucket_view"])
    if optimizer == "sgd":
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, fused=True)
    else:
        opt = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    if request["compile"]:
        torch._dynamo.reset()
        run = torch.compile(run)

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=request["precision"] == "bf16"):
            loss = F.cross_entropy(run(x).reshape(-1, classes).float(), y.reshape(-1))
        loss.backward()
        opt.step()
        loss.item()

    return step


def exchanger(request):
    """A function that reduces as many bytes as there are gradients, in buckets."""
    left = 4 * sum(p.numel() for p in MODELS[request["model"]][0]().parameters())
    size, buckets = int(request["bucket_mb"] * (1 << 20)), []
    while left > 0:
        buckets.append(torch.ones(min(left, size) // 4))
        left -= size

    def step():
        for work in [dist.all_reduce(b, async_op=True) for b in buckets]:
            work.wait()
        for b in buckets:
            b.fill_(1)

    return step


def measure(request, rank):
    torch.set_flush_denormal(request["ftz"])
    pin(rank, request["pin"])
    step = exchanger(request) if request["mode"] == "comm" else trainer(request, rank)
    together = request["mode"] != "compute"

    def timed(count):
        times = []
        for _ in range(count):
            begin = time.monotonic()
            step()
            times.append(time.monotonic() - begin)
        return times

    count = torch.tensor(request["seconds"] / timed(WARM_UP)[-1])
    if together:
        dist.broadcast(count, 0)
    times = timed(int(min(max(count.item(), LEAST), MOST)))
    return {"ms": 1e3 * statistics.median(times), "steps": len(times), "torch": torch.__version__}


ALL_CORES = os.sched_getaffinity(0)
RANK, RANKS, MEETING = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{MEETING}", rank=RANK, world_size=RANKS)
for line in sys.stdin:
    print(json.dumps(measure(json.loads(line), RANK)), flush=True)
dist.destroy_process_group()
