#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a rank of Horovod says to its launcher, replayed: the requests of its HTTPStore (PUT own
address, GET those of the others until they are there, DELETE own rank) for the groups global, local
and cross, with a real connection between the ranks of each, twice (hvd.shutdown, hvd.init); then
what an elastic program asks and registers. Prints "rank R of N: local L of M, cross C of D"."""
import base64
import os
import pickle
import socket
import sys
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

env = {name: int(os.environ["HOROVOD_" + name])
       for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")}
host = os.environ["HOROVOD_HOSTNAME"]
assert os.environ["HOROVOD_CONTROLLER"] == os.environ["HOROVOD_CPU_OPERATIONS"] == "gloo"
server = f"http://{os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:" \
         f"{os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}/"
until = time.monotonic() + 100


def ask(method, scope, key, body=None):
    """The body of the answer; None: 404. As for Horovod, all but 200 and 404 is a failure."""
    request = Request(server + scope + "/" + key, data=body, method=method)
    try:
        with urlopen(request, timeout=30) as r:
            return r.read()
    except HTTPError as e:
        if e.code == 404:
            return None
        raise


def meet(rank, peers):
    """A barrier: peers are the connections of rank 0 to all others, or the others' to rank 0."""
    if rank == 0:
        for p in peers:
            assert p.recv(1) == b"x"
    for p in peers:
        p.sendall(b"x")
    if rank != 0:
        assert peers[0].recv(1) == b"x"


def rendezvous(scope, rank, size, number):
    """One group: all ranks connect to the first, whose address they have from the store; returns
    the connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    mine = f"127.0.0.1:{listener.getsockname()[1]}:{number}".encode()
    ask("PUT", scope, str(rank), mine)
    addresses = []
    for peer in range(size):
        while (value := ask("GET", scope, str(peer))) is None:
            assert time.monotonic() < until, f"{scope}/{peer} never came"
            time.sleep(0.01)
        addresses.append(value.decode())
    assert addresses[rank].encode() == mine
    assert all(a.endswith(f":{number}") for a in addresses), f"{scope}: keys of another round"
    if rank == 0:
        listener.settimeout(30)
        peers = [listener.accept()[0] for _ in range(size - 1)]
    else:
        peers = [socket.create_connection(addresses[0].split(":")[:2], timeout=30)]
    for p in peers:
        p.settimeout(30)
    meet(rank, peers)  # as before the store is finalised
    listener.close()
    ask("DELETE", scope, str(rank))
    return peers


for number in (1, 2):
    world = rendezvous("global", env["RANK"], env["SIZE"], number)
    rendezvous("local_" + host, env["LOCAL_RANK"], env["LOCAL_SIZE"], number)
    rendezvous(f"cross_{env['LOCAL_RANK']}", env["CROSS_RANK"], env["CROSS_SIZE"], number)
    meet(env["RANK"], world)  # hvd.shutdown is agreed on by all: no key of this round is left
place = ask("GET", "rank_and_size", f"{host}:{env['LOCAL_RANK']}")
assert place.decode() == ",".join(str(v) for v in env.values()), place
assert ask("GET", "rank_and_size", "elsewhere:0") == b"-1,-1,-1,-1,-1,-1"
addresses = base64.b64encode(pickle.dumps(({"lo": [("127.0.0.1", 1)]}, b"secret")))
ask("PUT", "worker_addresses", f"{host}:{env['LOCAL_RANK']}", addresses)
assert ask("GET", "worker_addresses", f"{host}:{env['LOCAL_RANK']}") == addresses
# A scope that the ranks made up, as process sets are: its keys go one by one.
own = f"process-set-{env['RANK']}"
ask("PUT", own, "a", bytes(range(256)) * 100)
assert ask("GET", own, "a") == bytes(range(256)) * 100
ask("DELETE", own, "a")
assert ask("GET", own, "a") is None
for path, code in (("global", 404), ("global/" + "k" * 300, 400)):
    try:
        urlopen(server + path, timeout=30)
        sys.exit(f"{path} was accepted")
    except HTTPError as e:
        assert e.code == code, (path, e.code)
print(f"rank {env['RANK']} of {env['SIZE']}: local {env['LOCAL_RANK']} of {env['LOCAL_SIZE']}, "
      f"cross {env['CROSS_RANK']} of {env['CROSS_SIZE']}")
