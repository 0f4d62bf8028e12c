# SPDX-License-Identifier: Apache-2.0
"""The two sides of make bench-ddp: `tandem train` and PyTorch DDP, each as milliseconds a step.

Ours is the product as users start it: a job file, data read through the data pipeline, metrics
written; the time of a step is the difference of `elapsed` between lines of metrics.jsonl. PyTorch
trains on one batch that stays in memory, so what is measured of ours has more in it, never less.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from jobs import ROWS

HERE = Path(__file__).resolve().parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
CAPPED = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
WARM_UP, LEAST, MOST = 2, 4, 5000
MOST_SECONDS = 600  # of one measurement


def phases(lines):
    """Where the time of a step went, in milliseconds: means over steps and ranks."""
    lines = [line for line in lines if line["kind"] == "ranks"]
    steps = sum(line["steps"] for line in lines)
    keys = {"compute": "compute", "update": "update", "comm": "comm", "busy": "comm_busy",
            "wait": "wait", "data": "data"}
    return {name: 1e3 * sum(statistics.mean(line[key]) for line in lines) / steps
            for name, key in keys.items()} if steps else {}


class Place:
    """Where ranks run: this host. A link between namespaces (link.py) is another one."""

    name = "here"
    ranks = 2
    env = {"GLOO_SOCKET_IFNAME": "lo"}

    def wrap(self, rank):
        """What stands before the command of a process that is rank `rank`."""
        return []

    def launch(self, tandem, job):
        """Two ranks train."""
        return [tandem, "train", job, "-n", self.ranks]

    def peer_env(self, rank):
        return self.env


class Ours:
    """`tandem train`."""

    def __init__(self, build, folder, seconds):
        self.tandem, self.folder, self.seconds = build / "tandem", folder, seconds
        self.known = {}  # what is being run: milliseconds a step, to know how many to make
        text = subprocess.run([self.tandem, "help", "job"], capture_output=True, text=True).stdout
        self.can_be_loose = "reproducible" in text

    def start(self, command, model, precision, batch, steps, sets):
        """A process and the folder of its run."""
        run = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        values = {"train.batch": batch, "train.steps": steps, "train.precision": precision, **sets}
        command = [*command, "-q", f"--run-dir={run}"]
        command += [f"--set={k}={v}" for k, v in values.items()]
        return subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True), run

    def read(self, process, run):
        """Milliseconds of the median step, the line with which the run began, phases of a step."""
        try:
            out, _ = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        if process.returncode:
            sys.exit(f"bench-ddp: failed: {' '.join(process.args)}\n{out}")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        at = [line["elapsed"] for line in lines if line["kind"] == "step"]
        shutil.rmtree(run.parent)
        times = [b - a for a, b in zip(at[WARM_UP:], at[WARM_UP + 1:])]
        return 1e3 * statistics.median(times), lines[0], phases(lines)

    def ready(self, model, precision, place):
        """Buckets of a step over the place: (after which share of backward and all before it a
        bucket is final, its share of the bytes), in order; medians over steps and ranks."""
        command = [*place.launch(self.tandem, self.folder / f"{model}.yaml"), "--profile"]
        process, run = self.start(command, model, precision, ROWS[model] * place.ranks,
                                  WARM_UP + LEAST + 1, {})
        out, _ = process.communicate(timeout=MOST_SECONDS)
        if process.returncode:
            sys.exit(f"bench-ddp: failed: {' '.join(process.args)}\n{out}")
        events = json.loads((run / "trace.json").read_text())
        shutil.rmtree(run.parent)
        pieces, buckets = {}, {}
        for e in events:
            kind, step = e.get("name", "").split(" ")[0], e.get("args", {}).get("step", 0)
            if step > WARM_UP and kind in ("micro-batch", "bucket"):
                spans = pieces if kind == "micro-batch" else buckets
                spans.setdefault((e["pid"], step), []).append(e)
        found = {}
        for key, list_ in buckets.items():
            begin = min(e["ts"] for e in pieces[key])
            end = max(e["ts"] + e["dur"] for e in pieces[key])
            for e in list_:
                at = (e["args"]["ready"] - begin) / (end - begin)
                found.setdefault((int(e["name"].split(" ")[1]), e["args"]["kib"]), []).append(at)
        total = sum(kib for _, kib in found)
        return [(min(1, statistics.median(at)), kib / total)
                for (_, kib), at in sorted(found.items())]

    def measure(self, model, precision, ranks, sets=None, copies=1, place=Place()):
        """Of one run on all ranks of the place, or of `copies` runs of one rank at once."""
        job, sets = self.folder / f"{model}.yaml", sets or {}
        key = (place.name, model, precision, ranks, copies, str(sets))

        def once(steps):
            batch, running = ROWS[model] * ranks, []
            for i in range(copies):
                command = (place.launch(self.tandem, job) if ranks > 1 else
                           [*place.wrap(i), self.tandem, "train", job])
                running.append(self.start(command, model, precision, batch, steps, sets))
            read = [self.read(*r) for r in running]
            return max(ms for ms, *_ in read), *read[0][1:]

        steps = WARM_UP + LEAST + 1
        if key in self.known:
            steps = WARM_UP + 1 + int(min(max(1e3 * self.seconds / self.known[key], LEAST), MOST))
        self.known[key], begin, self.phases = once(steps)
        self.micro_batches, self.params = begin["micro_batches"], begin["params"]
        if self.known[key] * LEAST < 1e3 * self.seconds / 2 and steps == WARM_UP + LEAST + 1:
            return self.measure(model, precision, ranks, sets, copies, place)  # too short a look
        return self.known[key]


class Peer:
    """Processes of PyTorch that stay for many measurements; a new set after one has died."""

    def __init__(self, python, folder, place=Place()):
        self.python, self.folder, self.place = python, folder, place
        self.capped, self.processes = False, []

    def begin(self):
        meeting = tempfile.mktemp(dir=self.folder)
        for rank in range(self.place.ranks):
            env = dict(os.environ, **ONE_THREAD, **self.place.peer_env(rank),
                       **(CAPPED if self.capped else {}))
            command = [*self.place.wrap(rank), self.python, HERE / "peer.py", rank,
                       self.place.ranks, meeting]
            self.processes.append(subprocess.Popen(
                [str(c) for c in command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True))

    def end(self):
        for p in self.processes:
            p.kill()
        for p in self.processes:
            p.wait()
            p.stdin.close()
            p.stdout.close()
        self.processes = []

    def ask(self, request, capped, ranks=None):
        """Milliseconds of a step on the slowest rank, or None if a process died."""
        if capped != self.capped:
            self.end()
        self.capped = capped
        if not self.processes:
            self.begin()
        asked = self.processes[:ranks]
        guard = threading.Timer(MOST_SECONDS, lambda: [p.kill() for p in asked])
        guard.start()
        try:
            for p in asked:
                p.stdin.write(json.dumps(request) + "\n")
                p.stdin.flush()
            answers = [json.loads(p.stdout.readline()) for p in asked]
        except (OSError, ValueError):
            self.end()
            return None
        finally:
            guard.cancel()
        self.version = answers[0]["torch"]
        return max(a["ms"] for a in answers)


PLAIN = {"compile": False, "channels_last": False, "bucket_mb": 25, "static_graph": True,
         "bucket_view": True, "ftz": True, "pin": False}


class Variant:
    """One way to train a model with PyTorch DDP."""

    def __init__(self, model, precision, flags, capped=False):
        self.model, self.precision, self.flags, self.capped = model, precision, flags, capped

    def measure(self, peer, seconds, mode="step", ranks=None):
        request = dict(self.flags, model=self.model, precision=self.precision, seconds=seconds,
                       mode=mode)
        ms = peer.ask(request, self.capped, ranks)
        if ms is None and self.precision == "bf16" and not self.capped:
            self.capped = True  # machines that hide AMX's CPUID leaves
            ms = peer.ask(request, self.capped, ranks)
        return ms

    def __str__(self):
        f = self.flags
        words = [self.precision, "compile" if f["compile"] else "eager"]
        words += ["channels_last"] if f["channels_last"] else []
        words += [] if f["bucket_mb"] == PLAIN["bucket_mb"] else [f"{f['bucket_mb']} MB buckets"]
        words += [] if f["static_graph"] else ["no static_graph"]
        words += [] if f["bucket_view"] else ["no bucket view"]
        words += [] if f["ftz"] else ["denormals"]
        words += ["pinned"] if f["pin"] else []
        words += ["oneDNN capped"] if self.capped else []
        return " ".join(words)


OPTIONS = (("bucket_mb", 1), ("bucket_mb", 5), ("bucket_mb", 100), ("static_graph", False),
           ("bucket_view", False), ("ftz", False), ("pin", True))


class Search:
    """For the fastest way to train a model with PyTorch DDP: precision, compilation and layout in
    all combinations, then each other option by itself on top of the best so far. What was found for
    f32 is where bf16 starts, and only buckets are tried again in another place."""

    def __init__(self, model, seconds, quick):
        self.model, self.seconds, self.quick = model, seconds, quick
        self.times = {}  # by place and name
        self.base = PLAIN

    def time_of(self, peer, variant):
        key = (peer.place.name, str(variant))
        if key not in self.times:
            ms = variant.measure(peer, self.seconds)
            print(f"  PyTorch DDP {self.model} {variant}: {f'{ms:.2f} ms' if ms else 'died'}",
                  flush=True)
            self.times[key] = ms or float("inf")
            self.times[peer.place.name, str(variant)] = self.times[key]  # it may be capped now
        return self.times[key]

    def improve(self, peer, best, options):
        for key, value in options:
            flags = dict(best.flags, **{key: value})
            other = Variant(self.model, best.precision, flags, best.capped)
            best = min(best, other, key=lambda v: self.time_of(peer, v))
        return best

    def best(self, peer, precision):
        layouts = (False, True) if self.model in ("cnn", "resnet18") else (False,)
        tried = [Variant(self.model, p, dict(self.base, compile=c, channels_last=layout))
                 for p in (("f32",) if precision == "f32" else ("bf16", "f32"))
                 for c in ((False,) if self.quick else (False, True)) for layout in layouts]
        best = min(tried, key=lambda v: self.time_of(peer, v))
        if self.base is PLAIN:
            best = self.improve(peer, best, OPTIONS[-1:] if self.quick else OPTIONS)
            self.base = best.flags
        if self.time_of(peer, best) == float("inf"):
            sys.exit(f"bench-ddp: PyTorch cannot train {self.model} at all")
        return best

    def elsewhere(self, peer, variant):
        """The variant with the best buckets for the place of this peer."""
        buckets = () if self.quick else (1, 5, 25, 100)
        return self.improve(peer, variant, [("bucket_mb", b) for b in buckets])
