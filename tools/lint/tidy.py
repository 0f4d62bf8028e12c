#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy (.clang-tidy) over src/, each file once: kernels are compiled several times, but their
text is the same. A file that passed is not looked at again, in any build folder, until it, a header
it includes, the checks or its command change: ~/.cache/tandem/tidy has an empty file named by the
hash of all these for each that passed."""
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from source import ROOT, Report

KEPT_S = 30 * 24 * 3600  # since a stamp was last used

report = Report("tidy")
build = (ROOT / sys.argv[1]).resolve()
work = build / "lint"
work.mkdir(exist_ok=True)
passed = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tandem" / "tidy"
passed.mkdir(parents=True, exist_ok=True)
for stamp in passed.iterdir():
    if time.time() - stamp.stat().st_mtime > KEPT_S:
        stamp.unlink()

commands = {}
for entry in json.loads((build / "compile_commands.json").read_text()):
    name = os.path.relpath(entry["file"], ROOT)
    if name.startswith("src/"):
        commands.setdefault(name, entry)
(work / "compile_commands.json").write_text(json.dumps(list(commands.values())))

# What each object was made from, as the compiler told ninja.
sources = {}
made_from = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True,
                           text=True, check=True).stdout
for line in made_from.splitlines():
    if line.startswith("    "):
        sources[made].append(build / line.strip())
    elif line:
        made = line.split(": #deps")[0]
        sources[made] = []

common = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
common.update(subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout)


@functools.cache
def hash_of(path):
    return hashlib.sha256(path.read_bytes()).digest()


def check(name):
    entry = commands[name]
    digest = common.copy()
    digest.update(entry["command"].replace(str(ROOT), "").encode())
    for source in sources[re.search(r" -o (\S+)", entry["command"])[1]]:
        digest.update(hash_of(source))
    stamp = passed / digest.hexdigest()
    if stamp.exists():
        stamp.touch()
        return name, True, ""
    run = subprocess.run(["clang-tidy", "--quiet", "-p", str(work), str(ROOT / name)],
                         capture_output=True, text=True)
    good = run.returncode == 0 and "warning:" not in run.stdout
    if good:
        stamp.touch()
    return name, good, run.stdout.replace(str(ROOT) + "/", "") + ("" if good else run.stderr)


with ThreadPoolExecutor(os.cpu_count()) as pool:
    for name, good, text in pool.map(check, sorted(commands)):
        if not good:
            report.error(name, 0, "clang-tidy complains")
            print(text)
report.done()
