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
import torch.nn.functional as F  # noqa: E402
from models import MODELS  # noqa: E402

torch.set_num_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(1)

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
