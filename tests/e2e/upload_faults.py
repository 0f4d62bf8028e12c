# SPDX-License-Identifier: Apache-2.0
"""Runs that upload to a store which fails on purpose. At no moment is the newest checkpoint there
anything but whole, and a run that is continued from there ends as one that never was interrupted.

    upload_faults.py s3|http|shards|killed|elastic FOLDER DIGEST"""
import glob
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from s3_stub import S3Stub

PATIENCE_S = 100
TANDEM = os.path.join(os.environ["TD_BUILD"], "tandem")
STEPS = 100
FILES = ("model.safetensors", "optimizer.safetensors")


class Store(S3Stub):
    """Holds what it is told against what a checkpoint is, after every change."""
    objects = {}
    run = "/bucket/runs/up"
    faults = {}  # every so many requests of a method: what goes wrong
    requests = 0
    happened = {}
    damage = []
    away = False
    stuck = None  # name of objects whose upload never ends

    def fault(self):
        with self.changes:
            Store.requests += 1
            what = next((w for n, w in Store.faults.items() if Store.requests % n == 0), None)
        if Store.away or (Store.stuck and Store.stuck in self.path and self.command == "PUT"):
            what = "cut"
        if what == "lost" and self.command != "PUT":
            what = None
        if what:
            Store.happened[what] = Store.happened.get(what, 0) + 1
        return what

    def changed(self, path):
        try:
            for pointer in ("latest", "best"):
                if named(pointer):
                    check(named(pointer))
        except AssertionError as e:
            Store.damage.append(f"after {path}: {e}")


class PlainStore(Store):
    signed = False


def named(pointer):
    return Store.objects.get(f"{Store.run}/{pointer}", b"").decode().strip()


def content(name, file, nbytes):
    """Of a file that is there, or in shards."""
    folder = f"{Store.run}/{name}"
    shards = Store.objects.get(f"{folder}/shards.json")
    if not shards or file not in FILES:
        return Store.objects.get(f"{folder}/{file}", b"")
    data = bytearray(nbytes)
    for shard in json.loads(shards)["shards"]:
        have, at = Store.objects.get(f"{folder}/{shard['object']}", b""), 0
        assert hashlib.sha256(have).hexdigest() == shard["sha256"], f"{name}: {shard['object']}"
        for where, offset, n in shard["ranges"]:
            if where == file:
                data[offset:offset + n] = have[at:at + n]
            at += n
        assert at == len(have), f"{name}: {shard['object']} has {len(have)} bytes, not {at}"
    return bytes(data)


def check(name):
    """The checkpoint is whole."""
    state = Store.objects.get(f"{Store.run}/{name}/state.json")
    assert state, f"{name} has no state.json"
    for file, of in json.loads(state)["files"].items():
        data = content(name, file, of["nbytes"])
        assert hashlib.sha256(data).hexdigest() == of["sha256"], f"{name}: {file} is another"


def until(what, condition, run=None):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        assert run is None or run.poll() is None, f"the run ended before: {what}: {run.said()}"
        time.sleep(0.02)


class Run(subprocess.Popen):
    def __init__(self, *args, folder="."):
        os.makedirs(folder, exist_ok=True)
        self.log = os.path.abspath(f"{folder}/out")
        with open(self.log, "wb") as out:
            super().__init__([TANDEM, "train", *args], cwd=folder, stdout=out, stderr=out)

    def said(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def ends(self, status):
        got = self.wait(PATIENCE_S)
        assert got == status, f"status {got}, not {status}: {self.said()}"
        return self.said()


def step_of(folder):
    try:
        with open(f"{folder}/metrics.jsonl", encoding="utf-8") as f:
            return sum('"kind": "step"' in line for line in f)
    except FileNotFoundError:
        return 0


def local(folder, pointer="latest"):
    with open(f"{folder}/checkpoints/{pointer}", encoding="utf-8") as f:
        return f.read().strip()


def artifacts(folder):
    """What the run has beside its checkpoints is in the store as it is here."""
    for file in ("job.yaml", "metrics.jsonl", "report.html"):
        with open(f"{folder}/{file}", "rb") as f:
            assert Store.objects.get(f"{Store.run}/{file}") == f.read(), f"{file} is another"


def away_at_the_end(run, folder):
    """Longer than the attempts of one request: the run says so, and still waits."""
    until("steps", lambda: named("latest") > local("first"), run)
    Store.away = True
    port = Store.server.server_address[1]
    Store.server.shutdown()
    Store.server.server_close()
    until("the end", lambda: step_of(folder) == STEPS, run)
    until("a warning", lambda: "it is tried again" in run.said(), run)
    Store.away = False
    Store.server = Store.kind.start(port)


def upload(url, faults):
    """First run: the store fails, goes and comes back; the second, from the URL alone: it goes
    before the end."""
    server = Store.server
    Store.faults = {7: 500, 11: "cut", 17: "lost"} if faults else {}
    slow = "--faults=slow rank=0 for=20ms at=step:1"
    run = Run("job.yaml", "-q", "--run-dir", "first", "--set", f"checkpoint.upload={url}", slow)
    until("a checkpoint is there", lambda: named("latest"), run)
    until("a report is there", lambda: f"{Store.run}/report.html" in Store.objects, run)
    Store.away = True
    server.shutdown()
    server.server_close()
    before, there = step_of("first"), named("latest")
    until("the run goes on", lambda: step_of("first") >= before + 10, run)
    Store.away = False
    Store.server = server = Store.kind.start(server.server_address[1])
    until("a newer checkpoint", lambda: named("latest") != there, run)
    run.send_signal(signal.SIGTERM)
    run.ends(130)
    assert named("latest") == local("first"), f"{named('latest')}, not {local('first')}"
    artifacts("first")
    kept = sum(path.endswith("/state.json") for path in Store.objects)
    assert kept <= 3, f"{kept} checkpoints are kept"
    if faults:
        assert set(Store.happened) == {500, "cut", "lost"}, Store.happened
    second = Run(f"--resume={url}", "-q", slow, folder="second")
    at = "second/runs/up"
    if faults:
        away_at_the_end(second, at)
    digest(second.ends(0))
    assert named("latest") == f"step-{STEPS:08}" == local(at)
    assert named("best") == local(at, "best")
    artifacts(at)
    assert step_of(at) == STEPS, "steps of the first run are not in the curves"


def digest(text):
    assert f"sha256:{WANT}" in text, f"another digest than {WANT}: {text}"


def fetch(url, folder, *args):
    """A run that is continued from what is there, without telling the store."""
    run = Run(f"--resume={url}", "-q", "--set=checkpoint.every=end",
              f"--set=checkpoint.upload=file:{os.path.abspath(folder)}/store", *args, folder=folder)
    digest(run.ends(0))


def shard_list(name):
    return json.loads(Store.objects[f"{Store.run}/{name}/shards.json"])["shards"]


def shards(url, faults):
    """Each rank sends what it holds; any number of ranks goes on from that."""
    del faults
    Store.faults = {13: 500, 19: "cut", 23: "lost"}
    for zero, ranks in ((1, 2), (2, 3), (3, 2)):
        Store.objects.clear()
        folder = f"zero{zero}"
        run = Run("job.yaml", "-q", "-n", str(ranks), f"--set=parallel.zero={zero}", "--run-dir",
                  folder, "--set", f"checkpoint.upload={url}",
                  "--faults=slow rank=0 for=5ms at=step:1")
        until("a checkpoint is there", lambda: named("latest"), run)
        there = named("latest")
        until("another one", lambda: named("latest") != there, run)
        run.send_signal(signal.SIGTERM)
        run.ends(130)
        last = named("latest")
        assert last == local(folder), f"{last}, not {local(folder)}"
        check(last)
        parts = shard_list(last)
        sizes = [len(Store.objects[f"{Store.run}/{last}/{p['object']}"]) for p in parts]
        assert len(sizes) == ranks and min(sizes) * 2 * ranks > sum(sizes), f"shards of {sizes}"
        for file in FILES:  # as rank 0 has written it
            with open(f"{folder}/checkpoints/{last}/{file}", "rb") as f:
                data = f.read()
            assert content(last, file, len(data)) == data, f"{file} is another"
        kept = sum(path.endswith("/state.json") for path in Store.objects)
        left = {path.split("/")[4] for path in Store.objects if "/shard-" in path}
        assert kept <= 3 and len(left) <= kept, f"{kept} checkpoints, shards of {left}"
        fetch(url, f"alone{zero}", "--set=parallel.zero=0")
    fetch(url, "other", "-n", "3", "--set=parallel.zero=1")
    # What is damaged is not taken.
    path = f"{Store.run}/{last}/{parts[1]['object']}"
    Store.objects[path] = bytes(len(Store.objects[path]))
    run = Run(f"--resume={url}", "-q", folder="damaged")
    assert "sha256" in run.ends(2), run.said()
    assert not glob.glob("damaged/runs/up/checkpoints/step-*")


def rank_pids(folder):
    """By rank, of the ranks of a run."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                environ = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
            with open(path.replace("environ", "cmdline"), "rb") as f:
                command = f.read()
        except OSError:
            continue
        if b"TANDEM_RANK" in environ and folder.encode() in command:
            found[int(environ[b"TANDEM_RANK"])] = int(path.split("/")[2])
    return found


def killed(url, faults):
    """kill -9 of a rank in the middle of its upload: the checkpoint before stays the newest."""
    del faults
    folder = os.path.abspath("killed")
    run = Run("job.yaml", "-q", "-n", "2", "--set=parallel.zero=2", "--run-dir", folder, "--set",
              f"checkpoint.upload={url}", "--faults=slow rank=0 for=5ms at=step:1")
    until("a checkpoint is there", lambda: named("latest"), run)
    Store.stuck = "/shard-1-of-"
    there = named("latest")
    until("an upload is cut", lambda: Store.happened.get("cut", 0) > 1, run)
    there = named("latest")
    os.kill(rank_pids(folder)[1], signal.SIGKILL)
    run.ends(1)
    assert named("latest") == there, f"{named('latest')}, not {there}"
    check(there)
    Store.stuck = None
    fetch(url, "again", "-n", "2", "--set=parallel.zero=2")
    # The run itself goes on, too, and takes away what was left of the other.
    digest(Run(f"--resume={folder}", "-q", "-n", "2").ends(0))
    assert named("latest") == f"step-{STEPS:08}"
    whole = {path.split("/")[4] for path in Store.objects if path.endswith("/state.json")}
    left = {path.split("/")[4] for path in Store.objects if "/shard-" in path}
    assert left <= whole, f"shards of {left}, checkpoints {whole}"


def elastic(url, faults):
    """The others go on without the rank, and so do their uploads."""
    del faults
    run = Run("job.yaml", "-q", "-n", "3", "--elastic", "--set=parallel.zero=3", "--run-dir",
              "lost", "--set", f"checkpoint.upload={url}",
              "--faults=slow rank=0 for=5ms at=step:1; kill rank=1 at=step:20; "
              "kill rank=0 at=step:50")
    digest(run.ends(0))
    assert named("latest") == f"step-{STEPS:08}"
    check(named("latest"))
    assert len(shard_list(named("latest"))) > 1
    fetch(url, "alone", "--set=parallel.zero=0")


def main():
    kind, folder = sys.argv[1:3]
    os.chdir(folder)
    Store.kind = PlainStore if kind == "http" else Store
    Store.server = Store.kind.start()
    at = f"http://127.0.0.1:{Store.server.server_address[1]}"
    os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret",
                      AWS_ENDPOINT_URL=at)
    url = f"{at}/bucket/runs/up" if kind == "http" else "s3://bucket/runs/up"
    what = {"s3": upload, "http": upload}.get(kind) or globals()[kind]
    what(url, kind == "s3")
    assert not Store.damage, Store.damage[:3]


WANT = sys.argv[3]
main()
