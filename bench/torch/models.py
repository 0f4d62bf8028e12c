# SPDX-License-Identifier: Apache-2.0
"""The benchmark models as PyTorch users would write them; train.c has the same."""
import torch
import torch.nn.functional as F
from torch import nn


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
