# SPDX-License-Identifier: Apache-2.0
"""The job of bench/elastic/run under torchrun: DDP over gloo, a checkpoint in a file after every
step, as PyTorch's documentation of fault tolerant training has it. Says "pid RANK PID" and
"step N" on standard output."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

FILE, BATCH, WIDTH, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])


def say(text):
    os.write(1, (text + "\n").encode())  # at once: two workers share the pipe


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # A store for each start: in the agent's, gloo meets addresses of workers that are dead, and
    # waits for them.
    store = dist.FileStore(f"{FILE}.store-{os.environ['TORCHELASTIC_RESTART_COUNT']}", size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    step = 0
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    if os.path.exists(FILE):
        state = torch.load(FILE, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = nn.parallel.DistributedDataParallel(net)
    x, y = torch.rand(BATCH // size, 784), torch.randint(10, (BATCH // size,))
    say(f"pid {rank} {os.getpid()}")
    while step < STEPS:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
        if rank == 0:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(),
                        "step": step}, FILE + ".new")
            os.replace(FILE + ".new", FILE)
            say(f"step {step}")
    dist.destroy_process_group()


main()
