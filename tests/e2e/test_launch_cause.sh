#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Of several ranks that end one is the cause: its status is the launcher's, its name the last line,
# also where the others notice its death, and have left, before it has ended for the kernel.
. "$(dirname "$0")/lib.sh"

# Rank 1 takes a while to end when it is killed: its memory is given back first. Rank 0 leaves with
# a status of its own as soon as that has begun.
cat >"$mark" <<'RANK'
import os
import signal
import sys
import time

PF_EXITING = 4


def exiting(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return int(f.read().rpartition(")")[2].split()[6]) & PF_EXITING
    except OSError:
        return True


if os.environ["TANDEM_RANK"] == "1":
    held = b"x" * (1 << 28)
    with open("pid.new", "w", encoding="ascii") as f:
        f.write(str(os.getpid()))
    os.rename("pid.new", "pid")
    while True:
        signal.pause()
if os.environ["TANDEM_RANK"] == "0":
    while not os.path.exists("pid"):
        time.sleep(0.01)
    with open("pid", encoding="ascii") as f:
        pid = int(f.read())
    os.kill(pid, signal.SIGKILL)
    while not exiting(pid):
        pass
    sys.exit(3)
signal.pause()
RANK
for try in 1 2 3; do
    rm -f pid
    run 137 "$tandem" launch -n 3 -- python3 "$mark"
    tail -n 1 out | grep -q '^tandem launch: killed by signal 9 (Killed): rank 1 of 3 ' ||
        fail "try $try: the last line is not the cause"
    none_left "a rank that was killed"
done
