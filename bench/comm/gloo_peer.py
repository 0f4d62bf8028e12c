# SPDX-License-Identifier: Apache-2.0
"""gloo, through PyTorch, beside `tandem bench comm`: all_reduce of f32 sums.

    gloo_peer.py RANKS SECONDS BYTES...

The method is that of the command: every rank rewrites its buffer, a barrier, one call; the time is
from the last start to the last end, on the clock that all processes share; the median over many
calls. One line of JSON per size.
"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

MOST_CALLS, LEAST_CALLS, WARM_UP = 400, 5, 2


def one_call(buffer, rank, times):
    buffer.fill_(rank + 1)
    dist.barrier()
    times[rank, 0] = time.monotonic_ns()
    dist.all_reduce(buffer)
    times[rank, 1] = time.monotonic_ns()
    dist.barrier()
    last = times.max(dim=0).values
    return (last[1] - last[0]).item() / 1e3


def work(rank, ranks, seconds, sizes, meeting, times, more):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for nbytes in sizes:
        buffer = torch.empty(nbytes // 4, dtype=torch.float32)
        for _ in range(WARM_UP):
            one_call(buffer, rank, times)
        us, begin = [], time.monotonic()
        while True:
            us.append(one_call(buffer, rank, times))
            if rank == 0:
                more[0] = len(us) < LEAST_CALLS or (
                    len(us) < MOST_CALLS and time.monotonic() - begin < seconds)
            dist.barrier()
            go_on = bool(more[0])
            dist.barrier()
            if not go_on:
                break
        if buffer[0].item() != ranks * (ranks + 1) / 2:
            sys.exit("gloo_peer: a wrong sum")
        us.sort()
        if rank == 0:
            print(json.dumps({"bytes": nbytes, "us": us[len(us) // 2], "low": us[len(us) // 10],
                              "high": us[len(us) - 1 - len(us) // 10]}), flush=True)
    dist.destroy_process_group()


def main():
    ranks, seconds, sizes = int(sys.argv[1]), float(sys.argv[2]), [int(a) for a in sys.argv[3:]]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    times = torch.zeros((ranks, 2), dtype=torch.int64).share_memory_()
    more = torch.zeros(1, dtype=torch.int64).share_memory_()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (ranks, seconds, sizes, os.path.join(folder, "meet"), times, more), ranks)


if __name__ == "__main__":
    main()
