# SPDX-License-Identifier: Apache-2.0
"""A worker as frameworks start them, without the framework: it finds the others by the variables
that the framework reads, and all of them agree on a sum. framework_worker.py FRAMEWORK"""
import errno
import json
import os
import socket
import sys
import time

PATIENCE_S = 60
FOREIGN = {"pytorch": ["TF_CONFIG", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"],
           "tensorflow": ["HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"],
           "horovod": ["TF_CONFIG", "OMPI_COMM_WORLD_RANK"],
           "mpi": ["TF_CONFIG", "HOROVOD_RANK"],
           "none": []}


def serve(address):
    host, port = address.rsplit(":", 1)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            s = socket.create_server((host, int(port)))
            break
        except OSError as e:  # a connection of somebody else may have the port for a moment
            if e.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
            time.sleep(0.05)
    s.settimeout(PATIENCE_S)
    return s


def connect(address):
    host, port = address.rsplit(":", 1)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def gather(master, rank, size, value):
    """Rank 0 collects a line of everybody and tells the list."""
    if rank == 0:
        values, ends = {0: value}, []
        with serve(master) as s:
            for _ in range(size - 1):
                end = s.accept()[0].makefile("rw")
                other, text = end.readline().rstrip("\n").split(" ", 1)
                values[int(other)] = text
                ends.append(end)
        assert sorted(values) == list(range(size)), values
        for end in ends:
            end.write(json.dumps([values[r] for r in range(size)]) + "\n")
            end.flush()
        return [values[r] for r in range(size)]
    end = connect(master).makefile("rw")
    end.write(f"{rank} {value}\n")
    end.flush()
    return json.loads(end.readline())


def pytorch(e):
    """torch.distributed.init_process_group("gloo", "env://")"""
    rank, size = int(e["RANK"]), int(e["WORLD_SIZE"])
    assert int(e["LOCAL_RANK"]) < int(e["LOCAL_WORLD_SIZE"])
    return rank, size, gather(f"{e['MASTER_ADDR']}:{e['MASTER_PORT']}", rank, size, str(rank + 1))


def tensorflow(e):
    """MultiWorkerMirroredStrategy: each worker listens at its own address of `cluster`, which is
    the same for all, and the first one leads."""
    config = json.loads(e["TF_CONFIG"])
    workers, task = config["cluster"]["worker"], config["task"]
    assert task["type"] == "worker" and len(set(workers)) == len(workers), config
    rank = task["index"]
    with serve(workers[rank]) if rank else open(os.devnull) as own:
        clusters = gather(workers[0], rank, len(workers), json.dumps(config["cluster"]))
        assert len(set(clusters)) == 1, clusters
        if rank:  # the first one calls back: the address is right for the others, too
            own.accept()[0].close()
        else:
            for other in workers[1:]:
                connect(other).close()
    return rank, len(workers), [str(r + 1) for r in range(len(workers))]


def horovod(e):
    """hvd.init(): ranks as given; they meet as the program says, here at the master's port."""
    rank, size = int(e["HOROVOD_RANK"]), int(e["HOROVOD_SIZE"])
    assert int(e["HOROVOD_LOCAL_RANK"]) < int(e["HOROVOD_LOCAL_SIZE"])
    assert int(e["HOROVOD_CROSS_RANK"]) < int(e["HOROVOD_CROSS_SIZE"]) and e["HOROVOD_HOSTNAME"]
    return rank, size, gather(f"{e['MASTER_ADDR']}:{e['MASTER_PORT']}", rank, size, str(rank + 1))


def mpi(e):
    """Started by mpiexec: Open MPI's names, or MPICH's."""
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    rank, size = (int(e[n]) for n in (names if names[0] in e else ("PMI_RANK", "PMI_SIZE")))
    return rank, size, [str(r + 1) for r in range(size)]


def main():
    framework = sys.argv[1]
    for name in FOREIGN[framework]:
        assert name not in os.environ, f"{framework} got {name}"
    kind = pytorch if framework == "none" else globals()[framework]
    rank, size, values = kind(os.environ)
    print(f"{framework} rank {rank} of {size} sum {sum(int(v) for v in values)}", flush=True)


main()
