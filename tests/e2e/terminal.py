#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a command on a pseudo terminal: terminal.py COLUMNS OUTPUT COMMAND...

Writes all that the terminal received to the file OUTPUT and leaves with the command's status. For
every line "TEXT SIGNAL" on standard input, in order, the signal is sent once TEXT was received."""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

DEADLINE = time.monotonic() + 200  # as long as lib.sh gives any command
columns, output, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
script = [] if sys.stdin.isatty() else [line.rsplit(None, 1) for line in sys.stdin if line.strip()]

pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.environ["TERM"] = "xterm"
    os.execvp(command[0], command)
received = b""
while True:
    ready, _, _ = select.select([fd], [], [], max(0, DEADLINE - time.monotonic()))
    if not ready:
        os.kill(pid, signal.SIGKILL)
        sys.exit("terminal.py: the command did not end in time")
    try:
        piece = os.read(fd, 65536)
    except OSError:  # the command has closed the terminal
        break
    if not piece:
        break
    received += piece
    while script and script[0][0].encode() in received:
        os.kill(pid, getattr(signal, script.pop(0)[1]))
with open(output, "wb") as f:
    f.write(received)
_, status = os.waitpid(pid, 0)
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)
