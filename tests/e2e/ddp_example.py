# SPDX-License-Identifier: Apache-2.0
"""PyTorch's example of DistributedDataParallel (the basic use case of its tutorial), on gloo: knows
nothing of Tandem and reads only what torchrun would have set."""
import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    assert rank == int(os.environ["RANK"])
    assert dist.get_world_size() == int(os.environ["WORLD_SIZE"])
    torch.manual_seed(rank)  # DDP makes the models equal, not the seed
    ddp_model = DDP(ToyModel())
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    for _ in range(3):
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        loss_fn(outputs, torch.randn(20, 5)).backward()
        optimizer.step()
    total = torch.cat([p.detach().flatten() for p in ddp_model.parameters()]).double().sum()
    print(f"parameters {total.item():.12f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
