#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden training runs: makes the files beside it with PyTorch.

    python3 make.py               write the files, print how firm the numbers are
    python3 make.py verify DIR    check what test_golden_train left in DIR (TD_KEEP_FILES=DIR)

Five small models, each trained for 20 steps with SGD and with AdamW, in f32 on one thread:

    NAME.safetensors     the first weights (mlp, cnn, lstm, gpt), under PyTorch's names
    losses.safetensors   "NAME.OPTIMIZER", f64 (21): the loss of each step, then the loss of batch 0
                         in evaluation mode with the final weights

Inputs, and resnet's first weights (too large to keep), are not stored: both sides make them with
    s <- 6364136223846793005 s + 1442695040888963407 (mod 2^64),   u = floor(s / 2^40) / 2^24,
starting from s = FNV-1a (64 bits) of the tensor's name, "x0" ... "x3" and "y0" ... "y3" for inputs:
    numbers      2u - 1, row-major          classes, tokens      floor(u n)
    resnet       weights r b with r = 2u - 1, b = sqrt(6 / fan_in), for fc 1 / sqrt(fan_in); norm
                 weights 1 + r/4, a quarter of it for each block's last norm (the branches are then
                 small beside the short cut, without which rounding grows a thousandfold in a few
                 steps); running_var 1 + r/4; biases and running_mean r/8
Step k trains on batch k mod 4, so that there is something to learn and the losses fall.

A difference of 1e-5 has to mean a mistake, so the runs must not magnify rounding: each is repeated
in f64, and in f32 with the first weights shifted by a unit in their last place, and unless all
these losses agree within 3e-6 nothing is written. Rates that make them agree are found by trial.
Losses in bf16 are compared with the same f32 numbers: another bf16 program rounds at other places,
so its losses would be no firmer a mark. But the same is asked of PyTorch's own bf16 autocast,
within 5e-3.
"""
import functools
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCHES = 20, 4


@functools.cache
def lcg(name, count):
    """count numbers u of [0, 1), multiples of 2^-24."""
    s = 0xcbf29ce484222325
    for byte in name.encode():
        s = ((s ^ byte) * 0x100000001b3) % 2**64
    out = []
    for _ in range(count):
        s = (s * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((s >> 40) / 2**24)
    return torch.tensor(out, dtype=torch.float64)


def numbers(name, *shape):
    return (2 * lcg(name, math.prod(shape)) - 1).reshape(shape)


def classes(name, n, *shape):
    return (lcg(name, math.prod(shape)) * n).floor().long().reshape(shape)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(20, 32), nn.Linear(32, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * 3 * 3, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False),
                                            nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    """torchvision's, with the stem for small images."""

    def __init__(self, width=16, n=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        cin = width
        for stage in range(4):
            cout = width << stage
            blocks = Block(cin, cout, 2 if stage else 1), Block(cout, cout, 1)
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
            cin = cout
        self.fc = nn.Linear(cin, n)
        with torch.no_grad():
            for name, t in self.state_dict().items():
                if t.is_floating_point():
                    t.copy_(self.first(name, t))

    @staticmethod
    def first(name, t):
        r = numbers(name, *t.shape)
        if t.dim() > 1:
            return r * math.sqrt((1 if name == "fc.weight" else 6) / (t.numel() / t.shape[0]))
        if name.endswith("bn2.weight"):
            return (1 + r / 4) / 4
        return 1 + r / 4 if name.endswith((".weight", "running_var")) else r / 8

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self, vocab=40, width=16, hidden=24):
        super().__init__()
        self.encoder = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, hidden, num_layers=2)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, ids):
        return self.decoder(self.rnn(self.encoder(ids))[0])


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, e = x.shape
        qkv = self.c_attn(x).reshape(b, t, 3, self.heads, e // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, e))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width),
                                  "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        y = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](y)


class Gpt(nn.Module):
    """nanoGPT's names; the head is the token table."""

    def __init__(self, vocab=48, width=32, heads=2, layers=2, context=32):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList([GptBlock(width, heads) for _ in range(layers)]),
            "ln_f": nn.LayerNorm(width)})
        with torch.no_grad():
            for table in (self.transformer["wte"], self.transformer["wpe"]):
                table.weight.mul_(0.1)

    def forward(self, ids):
        net = self.transformer
        x = net["wte"](ids) + net["wpe"].weight[:ids.shape[1]]
        for block in net["h"]:
            x = block(x)
        return F.linear(net["ln_f"](x), net["wte"].weight)


# name: class, inputs x of batch k, targets y of batch k, rates of SGD and AdamW
MODELS = {
    "mlp": (Mlp, lambda x: numbers(x, 16, 20), lambda y: classes(y, 5, 16), 0.2, 0.01),
    "cnn": (Cnn, lambda x: numbers(x, 8, 1, 10, 10), lambda y: classes(y, 10, 8), 0.05, 0.0007),
    "resnet": (ResNet18, lambda x: numbers(x, 16, 3, 16, 16), lambda y: classes(y, 10, 16),
               0.002, 0.0001),
    "lstm": (Lstm, lambda x: classes(x, 40, 12, 5), lambda y: classes(y, 40, 12, 5), 2, 0.02),
    "gpt": (Gpt, lambda x: classes(x, 48, 4, 24), lambda y: classes(y, 48, 4, 24), 0.1, 0.005),
}
OPTIMIZERS = {
    "sgd": lambda params, lr, _: torch.optim.SGD(params, lr, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda params, _, lr: torch.optim.AdamW(params, lr, weight_decay=0.01),
}


def batches(name, dtype):
    _, make_x, make_y, *_ = MODELS[name]
    xs = [make_x(f"x{k}") for k in range(BATCHES)]
    ys = [make_y(f"y{k}") for k in range(BATCHES)]
    return [(x.to(dtype) if x.is_floating_point() else x, y) for x, y in zip(xs, ys)]


def loss_of(net, batch, autocast=False):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = net(batch[0])
    if autocast:
        logits = logits.float()
    return F.cross_entropy(logits.flatten(0, -2), batch[1].flatten())


def run(name, optimizer, start, dtype=torch.float32, autocast=False):
    """The 21 losses, and the trained net."""
    cls, _, _, *rates = MODELS[name]
    net = cls()
    net.load_state_dict(start)
    net.to(dtype)
    data = batches(name, dtype)
    opt = OPTIMIZERS[optimizer](net.parameters(), *rates)
    losses = []
    for step in range(STEPS):
        loss = loss_of(net, data[step % BATCHES], autocast)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        losses.append(loss_of(net, data[0], autocast).item())
    return torch.tensor(losses, dtype=torch.float64), net


def first_weights(name):
    torch.manual_seed(1)
    return {k: v.clone() for k, v in MODELS[name][0]().state_dict().items()}


def deviation(a, b):
    return ((a - b).abs() / b.abs()).max().item()


def shifted(start, seed):
    """Each weight up or down by a unit in its last place, or as it was."""
    g = torch.Generator().manual_seed(seed)
    return {k: v * (1 + torch.randint(-1, 2, v.shape, generator=g) * 2.0**-23)
            if v.is_floating_point() else v for k, v in start.items()}


def make():
    golden, shaky = {}, []
    for name in MODELS:
        start = first_weights(name)
        if name != "resnet":
            save_file(start, os.path.join(HERE, f"{name}.safetensors"))
        for optimizer in OPTIMIZERS:
            losses, _ = run(name, optimizer, start)
            near = [run(name, optimizer, start, torch.float64)[0]]
            rough = [run(name, optimizer, start, autocast=True)[0]]
            for seed in range(5):
                near.append(run(name, optimizer, shifted(start, seed))[0])
                rough.append(run(name, optimizer, shifted(start, seed), autocast=True)[0])
            f32 = max(deviation(x, losses) for x in near)
            bf16 = max(deviation(x, losses) for x in rough)
            print(f"{name:7} {optimizer:6} {losses[0]:.4f} -> {losses[19]:.4f}, evaluation "
                  f"{losses[20]:.4f}; spread in f32 {f32:.1e}, in bf16 {bf16:.1e}", flush=True)
            if f32 > 3e-6 or bf16 > 5e-3:
                shaky.append(f"{name}.{optimizer}")
            golden[f"{name}.{optimizer}"] = losses
    if shaky:
        sys.exit(f"these runs magnify rounding: {' '.join(shaky)}; nothing written")
    save_file(golden, os.path.join(HERE, "losses.safetensors"),
              metadata={"torch": torch.__version__})


def verify(folder):
    """Our trained weights load strictly, are PyTorch's within rounding, and give the same loss."""
    losses = load_file(os.path.join(HERE, "losses.safetensors"))
    for name in MODELS:
        for optimizer in OPTIMIZERS:
            ours = load_file(os.path.join(folder, f"{name}.{optimizer}.safetensors"))
            stored = os.path.join(HERE, f"{name}.safetensors")
            start = load_file(stored) if os.path.exists(stored) else first_weights(name)
            _, net = run(name, optimizer, start)
            theirs = {k: v for k, v in net.state_dict().items() if v.is_floating_point()}
            assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
            apart = {k: (ours[k] - theirs[k]).abs().max().item() for k in theirs}
            worst = max(apart, key=apart.get)
            net.load_state_dict(ours, strict=False)
            with torch.no_grad():
                loss = loss_of(net, batches(name, torch.float32)[0]).item()
            want = losses[f"{name}.{optimizer}"][20].item()
            print(f"{name:7} {optimizer:6} weights apart by {apart[worst]:.1e} ({worst}), "
                  f"evaluation {loss:.7f} with ours, {want:.7f} with PyTorch's")
            assert abs(loss - want) <= 1e-5 * want
    print("ok")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if len(sys.argv) == 3 and sys.argv[1] == "verify":
        verify(sys.argv[2])
    elif len(sys.argv) == 1:
        make()
    else:
        sys.exit(__doc__)
