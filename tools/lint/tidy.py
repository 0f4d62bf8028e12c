#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy (.clang-tidy) over src/, each file once: kernels are compiled several times, but their
text is the same. Files that passed are not looked at again until they, a header, the checks or the
command change (build/lint/tidy/)."""
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from source import ROOT, Report, files

report = Report("tidy")
build = (ROOT / sys.argv[1]).resolve()
work = build / "lint"
(work / "tidy").mkdir(parents=True, exist_ok=True)

commands = {}
for entry in json.loads((build / "compile_commands.json").read_text()):
    name = os.path.relpath(entry["file"], ROOT)
    if name.startswith("src/"):
        commands.setdefault(name, entry)
(work / "compile_commands.json").write_text(json.dumps(list(commands.values())))

common = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
for header in files(".h", ".def"):
    common.update((ROOT / header).read_bytes())


def check(name):
    digest = common.copy()
    digest.update(commands[name]["command"].encode() + (ROOT / name).read_bytes())
    stamp = work / "tidy" / digest.hexdigest()
    if stamp.exists():
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
