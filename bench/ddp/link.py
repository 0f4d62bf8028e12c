# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces as two hosts, joined by a link of 1 Gbit/s (token bucket, both ways). Each
has half of the processors: what one rank sends is not to take the time of the other one's.
Congestion control is Linux's default, whatever this host has: BBR, for one, sets a timer for every
packet."""
import os
import shutil
import subprocess
import sys

from sides import Place

RATE, BURST, LATENCY = "1gbit", "256kb", "20ms"
NETWORK, CONGESTION = "10.213.78.0/24", "cubic"


class Link(Place):
    """A place of two hosts with one rank each, between open and close."""

    name = "link"

    def __init__(self):
        pid = os.getpid()
        self.spaces, self.cards = (f"tdx{pid}", f"tdy{pid}"), (f"vx{pid}", f"vy{pid}")
        self.addresses = ("10.213.78.1", "10.213.78.2")
        processors = sorted(os.sched_getaffinity(0))
        self.processors = [",".join(map(str, processors[i::2])) for i in range(2)]

    @staticmethod
    def missing():
        """Why there can be no link here; "" if there can."""
        if os.geteuid() != 0:
            return "needs root"
        for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("taskset", "util-linux")):
            if not shutil.which(program):
                return f"needs {program} (Debian: {package})"
        return "" if len(os.sched_getaffinity(0)) > 1 else "needs two processors"

    def open(self):
        """What `ip` or `tc` said against it; "" if it is there."""
        (x, y), (a, b) = self.spaces, self.cards
        steps = [f"ip netns add {x}", f"ip netns add {y}",
                 f"ip link add {a} netns {x} type veth peer name {b} netns {y}"]
        for space, card, address in zip(self.spaces, self.cards, self.addresses):
            steps += [f"ip -n {space} addr add {address}/24 dev {card}",
                      f"ip -n {space} link set {card} up", f"ip -n {space} link set lo up",
                      f"ip -n {space} route replace {NETWORK} dev {card} congctl {CONGESTION}",
                      f"ip netns exec {space} tc qdisc add dev {card} root tbf rate {RATE} "
                      f"burst {BURST} latency {LATENCY}"]
        for step in steps:
            done = subprocess.run(step.split(), capture_output=True, text=True)
            if done.returncode:
                self.close()
                return f"{step}: {done.stderr.strip()}"
        return ""

    def close(self):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def enter(self, rank):
        """Before the name of the namespace."""
        return ["taskset", "-c", self.processors[rank], "ip", "netns", "exec"]

    def wrap(self, rank):
        return [*self.enter(rank), self.spaces[rank]]

    def across(self, tandem, command):
        """One rank of a command on each side."""
        return [*self.wrap(0), tandem, "launch", "--hosts", f"localhost:1,{self.spaces[1]}:1",
                "--ssh", " ".join(self.enter(1)), "--listen", self.addresses[0], "--", *command]

    def launch(self, tandem, job):
        return self.across(tandem, [tandem, "train", job])

    def peer_env(self, rank):
        return {"GLOO_SOCKET_IFNAME": self.cards[rank]}

    def exchange(self, build, nbytes):
        """Milliseconds of our allreduce of so many bytes and nothing else."""
        command = self.across(build / "tandem", [build / "tests/prog_world", "speed", nbytes,
                                                 "direct"])
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              timeout=120)
        for line in done.stdout.splitlines():
            if "direct " in line:
                return float(line.split()[-1])
        sys.exit(f"bench-ddp: no allreduce over the link: {done.stdout}{done.stderr}")
