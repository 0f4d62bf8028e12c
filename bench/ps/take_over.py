# SPDX-License-Identifier: Apache-2.0
"""From kill -9 of a parameter server to the next step of the run, for a kill at every operation of
three steps of that server: 0, which leads, or another."""
import datetime
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

STEPS = 5, 6, 7
JOB = """\
name: take-over
model: [flatten, {linear: 64, act: relu}, linear]
data: {source: digits, count: 3000}
train: {batch: 48, steps: 40, eval: {every: never}, optimizer: {name: sgd, lr: 0.05}}
parallel: {servers: 2, replicas: 1, threads: 1}
checkpoint: {every: end}
log: {tensorboard: false, report: false}
"""
FAULT = re.compile(r"^(\S+Z) warn +train fault: kill", re.M)


def watch(process, metrics):
    """When each line of a step was seen, until the process ends: (step, time)."""
    seen, text, at = [], "", 0
    while process.poll() is None:
        now = time.time()
        if metrics.exists():
            with metrics.open() as f:
                f.seek(at)
                text += f.read()
                at = f.tell()
            *lines, text = text.split("\n")
            events = [json.loads(line) for line in lines]
            seen += [(e["step"], now) for e in events if e["kind"] == "step"]
        time.sleep(0.001)
    return seen


def measure(build, first, rank, step, op):
    """Seconds from the kill to the next step; None: the step has no such operation."""
    with tempfile.TemporaryDirectory() as folder:
        job, out = Path(folder, "job.yaml"), Path(folder, "out")
        job.write_text(JOB)
        with out.open("w") as to:
            process = subprocess.Popen(
                [*first, build / "tandem", "train", job, "-q", "-n", "2", "--sync", "asgd",
                 "--elastic", "--run-dir", f"{folder}/run",
                 "--faults", f"kill rank={rank} at=step:{step}:comm:{op}"], stdout=to, stderr=to)
            seen = watch(process, Path(folder, "run/metrics.jsonl"))
        text = out.read_text()
    if process.returncode:
        raise RuntimeError(f"kill at step {step}, operation {op}: {text}")
    died = FAULT.search(text)
    if not died:
        return None
    when = datetime.datetime.fromisoformat(died[1].replace("Z", "+00:00")).timestamp()
    return min(t for s, t in seen if s >= step and t > when) - when


def sweep(build, first, rank=0, one=False):
    """Of all kills, or of one: seconds, rising."""
    all_of_them = []
    if one:
        return [measure(build, first, rank, STEPS[0], 1)]
    for step in STEPS:
        op = 1
        while (took := measure(build, first, rank, step, op)) is not None:
            all_of_them.append(took)
            op += 1
    return sorted(all_of_them)
