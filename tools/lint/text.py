#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every text file: length, licence line, unfinished work, dead references, foreign hosts."""
import re
from collections import Counter
from pathlib import Path
from source import ROOT, Report, files, read

LINES = 600  # of a file
FILES = 60   # of a folder of sources; src/ops has one for each operator
COLUMNS = 100  # in comments too, which clang-format leaves alone
SOURCE = (".c", ".h", ".def", ".cu", ".cuh", ".cpp",
          ".py", ".sh", ".cmake", ".in", "CMakeLists.txt", ".yml", ".yaml")
NO_LICENCE_LINE = (".md", ".json", ".jsonl", ".npy", ".npz", ".safetensors", ".csv", ".bin",
                   "LICENSE", "checkpoints/best", "checkpoints/latest")
# Built from pieces so that this file passes its own check.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" "DO", "FIX" "ME", "X" "XX", "T" "BD"]) + r")\b")
HOSTS = re.compile("|".join(re.escape(h) for h in (
    "pypi" ".org", "python" "hosted.org", "deb." "debian.org", "security." "debian.org",
    "download." "pytorch.org", "registry." "npmjs", "crates" ".io", "conda." "anaconda.org")))
LOCAL = re.compile(r"/(?:tmp/wt|work/(?:main|shared)|home/\w+|root)\b")
MENTION = re.compile(r"(?<![\w./$-])[\w./-]+\.md\b")
SOURCE_MENTION = re.compile(r"(?<![\w/.*<-])((?:\w+/)+\w+\.(?:c|h|def|py|sh))\b")

report = Report("text")
names = files()
FOLDERS = {n.split("/")[0] for n in names if "/" in n}
FOLDERS |= {n.split("/")[1] for n in names if n.startswith("src/")}
for path in names:
    text = read(path)
    if text is None or path == "LICENSE":
        continue
    lines = text.splitlines()
    script = text.startswith("#!") or path.endswith(SOURCE) or path.endswith("Makefile")
    if script and len(lines) > LINES:
        report.error(path, 0, f"{len(lines)} lines, the limit is {LINES}: find the missing concept")
    if not path.endswith(NO_LICENCE_LINE) and "SPDX-License-Identifier: Apache-2.0" not in text:
        report.error(path, 1, "no SPDX-License-Identifier line")
    if text and not text.endswith("\n"):
        report.error(path, len(lines), "no newline at the end")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            report.error(path, number, "blanks at the end of the line")
        if UNFINISHED.search(line):
            report.error(path, number, "unfinished work is a failing test, not a comment")
        if HOSTS.search(line):
            report.error(path, number, "names a package registry's host")
        if LOCAL.search(line):
            report.error(path, number, "names a path of one machine")
        if len(line) > COLUMNS and script:
            report.error(path, number, f"{len(line)} columns, the limit is {COLUMNS}")
        for m in MENTION.finditer(line):
            name = m.group().lstrip("./")
            if not (ROOT / name).exists() and not (ROOT / path).parent.joinpath(m.group()).exists():
                report.error(path, number, f"mentions {m.group()}, which is not in the tree")
        prose = line if path.endswith((".c", ".h", ".def", ".md")) else ""
        for m in SOURCE_MENTION.finditer(prose):
            if m[1].split("/")[0] in FOLDERS and not any(
                    (ROOT / base / m[1]).exists() for base in ("", "src", "include")):
                report.error(path, number, f"mentions {m[1]}, which is not in the tree")
folders = Counter(str(Path(n).parent) for n in names if n.startswith(("src/", "cmd/", "include/")))
for folder, n in sorted(folders.items()):
    if n > FILES and folder != "src/ops":
        report.error(folder, 0, f"{n} files, the limit is {FILES}: find the folder that is missing")
report.done()
