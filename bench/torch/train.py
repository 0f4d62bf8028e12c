# SPDX-License-Identifier: Apache-2.0
"""One of the benchmark models trained with PyTorch for a while: the counterpart of train.c.

Prints one JSON object with what was measured. Same model, batch, optimizer and precision as
train.c, one thread. --compile uses torch.compile, --channels-last puts images and weights in NHWC;
bf16 is autocast, PyTorch's own way of mixed precision (f32 weights, bf16 products).
"""
import argparse
import json
import resource
import time

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--precision", default="f32")
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--started", type=float, default=time.monotonic_ns())
parser.add_argument("--compile", action="store_true")
parser.add_argument("--channels-last", action="store_true")
args = parser.parse_args()

import torch  # noqa: E402  (importing is part of what is measured)
from torch import nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(1)


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False),
                                      nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (self.down(x) if self.down else x), inplace=True)


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    cin = 64
    for cout, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(cin, cout, stride), Block(cout, cout, 1)]
        cin = cout
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class CharLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(96, 256)
        self.rnn = nn.LSTM(256, 256, 2)
        self.decoder = nn.Linear(256, 96)

    def forward(self, x):
        return self.decoder(self.rnn(self.encoder(x))[0])


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers=6, heads=6, width=384, vocab=4096, context=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x):
        h = self.h(self.wte(x) + self.wpe.weight[: x.shape[1]])
        return F.linear(self.ln_f(h), self.wte.weight)


MODELS = {  # name: (model, x, classes, shape of y, samples, optimizer, rate)
    "mlp": (lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                                  nn.Linear(256, 10)),
            lambda: torch.rand(64, 784) * 2 - 1, 10, (64,), 64, "sgd", 0.01),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                                  nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(),
                                  nn.Linear(128, 10)),
            lambda: torch.rand(64, 1, 28, 28) * 2 - 1, 10, (64,), 64, "sgd", 0.01),
    "resnet18": (resnet18, lambda: torch.rand(32, 3, 32, 32) * 2 - 1, 10, (32,), 32, "sgd", 0.01),
    "lstm": (CharLstm, lambda: torch.randint(96, (64, 32)), 96, (64, 32), 64 * 32, "sgd", 0.1),
    "gpt": (Gpt, lambda: torch.randint(4096, (8, 256)), 4096, (8, 256), 8 * 256, "adamw", 3e-4),
}

make, make_x, classes, y_shape, samples, optimizer, lr = MODELS[args.model]
model, x, y = make(), make_x(), torch.randint(classes, y_shape)
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
if optimizer == "sgd":
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, fused=True)
else:
    opt = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
run = torch.compile(model) if args.compile else model


def step():
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
        logits = run(x)
        loss = F.cross_entropy(logits.reshape(-1, classes).float(), y.reshape(-1))
    loss.backward()
    opt.step()
    return loss.detach()


times, losses, warm_up, begin = [], [], 3, time.monotonic()
while len(times) < 8 or time.monotonic() - begin < args.seconds:
    t = time.monotonic()
    losses.append(float(step()))
    times.append(time.monotonic() - t)
    if len(times) == 1:
        first = time.monotonic() - args.started * 1e-9
    if len(times) == warm_up:
        begin = time.monotonic()  # compilation does not count as measuring time
rest = sorted(times[warm_up:])
median = rest[len(rest) // 2]
print(json.dumps({
    "step_ms": median * 1e3, "best_ms": rest[0] * 1e3, "per_second": samples / median,
    "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "first_step_s": first,
    "steps": len(times), "loss_first": losses[0], "loss_last": losses[-1],
    "torch": torch.__version__}))
