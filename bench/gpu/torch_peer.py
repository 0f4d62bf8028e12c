#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models of bench_gpu by PyTorch at its best (bf16 autocast, fused AdamW, SDPA, channels_last):
torch_peer.py MODEL BATCH[,BATCH...] MODE, MODE being compile or eager. Prints a line for each
batch, as bench_gpu does."""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, CONTEXT, WIDTH, LAYERS, HEADS = 50304, 1024, 768, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, HEADS, d // HEADS).transpose(1, 2)
                   for p in self.qkv(self.ln1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.ln(h)).view(-1, VOCAB)


class Residual(nn.Module):
    def __init__(self, ins, mid, outs, stride, deep):
        super().__init__()
        sizes = [(ins, mid, 1, 1), (mid, mid, 3, stride), (mid, outs, 1, 1)] if deep else \
            [(ins, mid, 3, stride), (mid, outs, 3, 1)]
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in sizes)
        self.down = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False),
                                  nn.BatchNorm2d(outs)) if stride > 1 or ins != outs else None

    def forward(self, x):
        y, last = x, len(self.convs) - 1
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            y = F.relu(y) if i < last else y
        return F.relu(y + (self.down(x) if self.down else x))


def resnet(counts, deep, cifar, classes):
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()] if cifar else \
        [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
         nn.MaxPool2d(3, 2, 1)]
    ins, blocks = 64, []
    for stage, count in enumerate(counts):
        mid = 64 << stage
        outs = mid * 4 if deep else mid
        for i in range(count):
            blocks.append(Residual(ins, mid, outs, 2 if stage and i == 0 else 1, deep))
            ins = outs
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(ins, classes))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn = nn.Embedding(256, 256), nn.LSTM(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 256)

    def forward(self, x):
        return self.head(self.rnn(self.table(x))[0]).view(-1, 256)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                         nn.Linear(512, 10))


# model, shape of a sample, ids below (0: numbers), targets of a sample, classes
MODELS = {
    "gpt2": (Gpt2, (CONTEXT,), 50257, CONTEXT, 50257),
    "resnet50": (lambda: resnet([3, 4, 6, 3], True, False, 1000), (3, 224, 224), 0, 1, 1000),
    "resnet18": (lambda: resnet([2, 2, 2, 2], False, True, 10), (3, 32, 32), 0, 1, 10),
    "mlp": (mlp, (784,), 0, 1, 10),
    "lstm": (Lstm, (64,), 256, 64, 256),
}
name, batches, mode = sys.argv[1], [int(b) for b in sys.argv[2].split(",")], sys.argv[3]
make, shape, ids, targets, classes = MODELS[name]
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.benchmark = True


def small(module):
    """GPT-2's own distribution: the first loss is that of one that has learned nothing."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, 0, 0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def bench(batch):
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    model = make().cuda()
    if name == "gpt2":
        model.apply(small)
    x = (torch.randint(0, ids, (batch, *shape), device="cuda") if ids
         else torch.rand(batch, *shape, device="cuda") * 2 - 1)
    if len(shape) == 3:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch * targets,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)

    def loss_of(samples, wanted):
        return F.cross_entropy(model(samples), wanted)

    run = torch.compile(loss_of, dynamic=False) if mode == "compile" else loss_of

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    steps = 20 if batch * targets > 4096 else 100
    losses = [step() for _ in range(4)]
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(steps):
        last = step()
    torch.cuda.synchronize()
    each = (time.time() - start) / steps
    print(f"{name:10} batch {batch:4}  {each * 1e3:9.3f} ms a step  {batch / each:11.1f} samples/s"
          f"  {batch * targets / each:11.1f} targets/s  peak "
          f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB  first loss {losses[0].item():.4f} "
          f"last loss {last.item():.4f}  (torch {mode})", flush=True)


for size in batches:
    bench(size)
    torch.cuda.empty_cache()
