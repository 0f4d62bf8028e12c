#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M by PyTorch at its best (bf16 autocast, fused AdamW, SDPA): torch_gpt2.py BATCH MODE,
MODE being compile or eager. Prints one line, as bench_gpu does for ours."""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, CONTEXT, WIDTH, LAYERS, HEADS, STEPS = 50304, 1024, 768, 12, 12, 20


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


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.ln(h)).view(-1, VOCAB), y.view(-1))


batch, mode = int(sys.argv[1]), sys.argv[2]
torch.set_float32_matmul_precision("high")
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
run = torch.compile(model) if mode == "compile" else model
x, y = (torch.randint(0, 50257, (batch, CONTEXT), device="cuda") for _ in range(2))


def step():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = run(x, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for _ in range(4):
    step()
torch.cuda.synchronize()
start = time.time()
for _ in range(STEPS):
    step()
torch.cuda.synchronize()
each = (time.time() - start) / STEPS
print(f"torch {mode:10} batch {batch:4}  {each * 1e3:9.3f} ms a step  "
      f"{batch / each:11.1f} samples/s  {batch * CONTEXT / each:11.1f} targets/s  peak "
      f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
