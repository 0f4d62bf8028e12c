#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kill a run in the middle: kill_at.py STEP LOOPS COMMAND...

COMMAND is a `tandem train` that tells its steps with --json. It is killed with SIGKILL once it has
told of STEP, and a moment of LOOPS turns later. It cannot be done before that on any machine: it
talks into a pipe of one page, and waits in it for who reads. Ends with 1 if it ended by itself."""
import fcntl
import json
import os
import subprocess
import sys

step, loops, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # while there is nothing in it
run = subprocess.Popen(command, stdout=writer)
os.close(writer)
told = os.fdopen(reader, "rb", 0)
for line in iter(told.readline, b""):
    event = json.loads(line)
    if event["kind"] == "step" and event["step"] >= step:
        break
for _ in range(loops):
    pass
run.kill()
sys.exit(0 if run.wait() == -9 else 1)
