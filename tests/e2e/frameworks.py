# SPDX-License-Identifier: Apache-2.0
"""Groups of a real `tandem serve` on this host: two workers of each framework find each other; a
group outlives its service, also a killed one; a member that takes too much memory is ended; states
and results are kept, also in S3."""
import hashlib
import os
import shutil
import signal
import sys
import time
from s3_stub import S3Stub
from service import PATIENCE_S, Service

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "framework_worker.py")
TWO = {"members": 2}
JOB = """name: tiny
model: [flatten, {linear: {out: 16, act: relu}}, linear]
data: {source: spirals, count: 400, split: {valid: 0.2}}
train: {batch: 20, steps: 30, optimizer: {name: adamw, lr: 0.01}}
"""


def frameworks(s):
    jobs = {}
    for name in ("none", "pytorch", "tensorflow", "horovod", "mpi"):
        if name == "mpi" and not shutil.which("mpiexec"):
            print("mpi: skipped: no mpiexec (package openmpi-bin)", flush=True)
            continue
        jobs[name] = s.submit(name=name, framework=name, resources=TWO,
                              command=[sys.executable, WORKER, name])
    for name, job in jobs.items():
        s.ended(job)
        members = (0,) if name == "mpi" else (0, 1)  # mpiexec has one output for all
        text = "".join(s.raw("GET", f"/v1/jobs/{job}/logs?member={m}")[2].decode()
                       for m in members)
        for rank in (0, 1):
            line = f"{name} rank {rank} of 2 sum 3\n"
            assert line in text, f"'{line}' is missing in: {text}"


def failure(s):
    """Of two workers one fails: the other is stopped, and the job has its status."""
    script = 'if [ $RANK = 1 ]; then echo no luck; exit 7; fi; sleep 600'
    job = s.submit(name="fails", resources=TWO, command=["sh", "-c", script])
    end = s.ended(job, "failed")
    assert end["exit_status"] == 7 and "no luck" in end["message"], end


def adopt(s):
    """A service that is stopped or killed does not take its groups with it."""
    script = 'mkfifo go-$RANK; echo rank $RANK begins; read x < go-$RANK; echo rank $RANK ends'
    for how in (signal.SIGTERM, signal.SIGKILL):
        job = s.submit(name="outlives", resources=TWO, command=["sh", "-c", script])
        s.reach(job, ("running",))
        until = time.monotonic() + PATIENCE_S
        for rank in (0, 1):
            while b"begins" not in s.raw("GET", f"/v1/jobs/{job}/logs?member={rank}")[2]:
                assert time.monotonic() < until, f"rank {rank} does not begin"
        s.stop(how)
        s.start()
        assert s.get(f"/v1/jobs/{job}")["state"] == "running"
        for rank in (0, 1):
            with open(f"{s.folder}/data/jobs/{job}/work/go-{rank}", "w") as f:
                f.write("on\n")
        end = s.ended(job)
        assert end["attempt"] == 1, end
        for rank in (0, 1):
            log = s.raw("GET", f"/v1/jobs/{job}/logs?member={rank}")[2].decode()
            assert log == f"rank {rank} begins\nrank {rank} ends\n", log


def memory(s):
    """memory_mb is a member's: of all its processes."""
    hog = "import time; x = bytearray(%d << 20); print('has it', flush=True); time.sleep(600)"
    job = s.submit(name="hog", resources={"memory_mb": 100},
                   command=["sh", "-c", f"{sys.executable} -c \"{hog % 200}\" & wait"])
    end = s.ended(job, "failed")
    assert end["exit_status"] == 137 and "memory_mb is 100" in end["message"], end
    # The supervisor looks twice a second: one that is within its limit lives through two looks.
    small = s.submit(name="small", resources={"memory_mb": 300}, command=[
        sys.executable, "-c", "import time; x = bytearray(50 << 20); time.sleep(1.2)"])
    s.ended(small)
    if not control_group():
        print("memory: skipped: no control group that may be divided", flush=True)
        return
    # The kernel sees what grows and ends between two looks, and what a shell makes light of.
    quick = s.submit(name="quick", resources={"memory_mb": 100, "members": 2}, command=[
        "sh", "-c", f"test $RANK = 0 && exec sleep 600; {sys.executable} -c \"b'x' * (300 << 20)\";"
        " true"])
    end = s.ended(quick, "failed")
    assert end["exit_status"] == 137 and "wanted more" in end["message"], end
    token = os.listdir(f"{s.folder}/data/jobs/{quick}/attempts")[0]
    left = [n for n in os.listdir(control_group()) if token in n]
    assert not left, left


def control_group():
    """Where this process may have groups with a limit below its own: version 1; None: nowhere."""
    with open("/proc/self/cgroup") as f:
        own = [line.strip().split(":", 2)[2] for line in f if ":memory:" in line]
    folder = "/sys/fs/cgroup/memory" + (own[0] if own else "")
    try:
        os.mkdir(folder + "/tandem-probe-%d" % os.getpid())
        os.rmdir(folder + "/tandem-probe-%d" % os.getpid())
        return folder if own else None
    except OSError:
        return None


def state(s):
    """A worker that dies is started again alone and goes on where it was: in a folder, in S3."""
    tandem = os.path.join(os.environ["TD_BUILD"], "tandem")
    script = (f'{tandem} load state; mkdir -p state; n=$(cat "state/a file" || echo 0);'
              ' n=$((n + 1)); echo $n > "state/a file"; echo step $n;'
              f' {tandem} save state; test $n = 4 || exec sh -c "kill -9 \\$\\$"')
    for place in ({}, {"checkpoint": "s3://state/of this"}):
        job = s.submit(name="goes-on", restarts=3, command=["sh", "-c", script + "; true"], **place)
        end = s.ended(job)
        assert end["attempt"] == 1, end
        log = s.raw("GET", f"/v1/jobs/{job}/logs")[2].decode()
        assert "nothing was saved yet" in log and "loaded state (save 3)" in log, log
        assert [x for x in log.splitlines() if x.startswith("step")] == \
            ["step 1", "step 2", "step 3", "step 4"], log
    kept = [k for k in S3Stub.objects if k.startswith("/state/of this/save-")]
    assert sorted({k.split("/")[3] for k in kept}) == ["save-3", "save-4"], kept


def artifacts(s):
    """Results are in S3 with their sha256 when a job has succeeded; what cannot be sent is no
    success."""
    script = "cd $TANDEM_ARTIFACTS_DIR; mkdir d; printf weight > d/model.bin; printf x > 'a b'"
    job = s.submit(name="model", command=["sh", "-c", script])
    s.ended(job)
    objects = {k: v for k, v in S3Stub.objects.items() if k.startswith(f"/models/runs/{job}/")}
    base = f"/models/runs/{job}/"
    assert objects[base + "d/model.bin"] == b"weight" and objects[base + "a b"] == b"x", objects
    lines = objects[base + "MANIFEST"].decode().splitlines()
    digest = hashlib.sha256(b"weight").hexdigest()
    assert len(objects) == 3 and f"{digest} 6 d/model.bin" in lines, (objects, lines)
    S3Stub.refuse = True
    job = s.submit(name="model", command=["sh", "-c", script])
    end = s.ended(job, "failed")
    S3Stub.refuse = False
    assert "its artifacts" in end["message"], end
    assert f"/models/runs/{job}/MANIFEST" not in S3Stub.objects


def elsewhere(s):
    """Ranks of tandem in members that share no launcher: they meet at the master's port. Hosts are
    this one, reached by a command that runs scripts as ssh does."""
    job = s.submit(name="ranks", tracker="ssh", resources=TWO, job=JOB)
    s.ended(job)
    logs = [s.raw("GET", f"/v1/jobs/{job}/logs?member={m}")[2].decode() for m in (0, 1)]
    assert "2 ranks" in logs[0], logs
    alone = s.submit(name="alone", tracker="ssh", job=JOB)
    s.ended(alone)
    assert "2 ranks" not in s.raw("GET", f"/v1/jobs/{alone}/logs")[2].decode()


def main():
    s3 = S3Stub.start()
    s = Service(sys.argv[1], "capacity.slots=8", "capacity.memory_mb=4000",
                f"data.s3.endpoint=127.0.0.1:{s3.server_port}", "data.s3.access_key=key",
                "data.s3.secret_key=secret", "data.artifacts=s3://models/runs",
                "ssh.hosts=[127.0.0.1:4]", f"ssh.command={sys.argv[1]}/reach",
                f"ssh.dir={sys.argv[1]}/there")
    with open(f"{sys.argv[1]}/reach", "w") as f:
        f.write('#!/bin/sh\nshift\nexec "$@"\n')
    os.chmod(f"{sys.argv[1]}/reach", 0o755)
    try:
        for part in (frameworks, failure, adopt, memory, state, artifacts, elsewhere):
            part(s)
            print(part.__name__, flush=True)
    finally:
        s.stop()
        s3.shutdown()


main()
