#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes obey tools/deps.txt; an _impl.h is for its own folder; examples see the public headers
only."""
import re
from source import ROOT, Report, files, read, strip_c

report = Report("layers")
layers, libraries = {}, {}
for number, line in enumerate(read("tools/deps.txt").splitlines(), 1):
    m = re.fullmatch(r"(layer|library) (\S+):((?: \S+)*)", line)
    if m:
        (layers if m[1] == "layer" else libraries)[m[2]] = set(m[3].split())
    elif line and not line.startswith("#"):
        report.error("tools/deps.txt", number, f"cannot read: {line}")

folders = {p.split("/")[1] for p in files() if p.startswith("src/") and p.count("/") > 1}
for folder in sorted(folders - layers.keys()):
    report.error(f"src/{folder}", 0, "folder is not in tools/deps.txt")
named = layers.keys() | set().union(*layers.values(), *libraries.values())
for folder in sorted(named - folders):
    report.error("tools/deps.txt", 0, f"{folder} is no folder under src/")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
for path in files(".c", ".h", ".def", ".cu", ".cuh"):
    parts = path.split("/")
    text = strip_c(read(path), keep_strings=True)
    for m in INCLUDE.finditer(text):
        line = text.count("\n", 0, m.start(2)) + 1
        quote, target = m[1], m[2]
        if ".." in target.split("/"):
            report.error(path, line, f'"{target}": name it from src/ or include/')
        if parts[0] == "examples" and quote == '"' and not target.startswith("tandem/"):
            report.error(path, line, f'"{target}": examples use the public headers only')
        # Tests may look inside what they test.
        if parts[0] in ("src", "cmd") and target.endswith("_impl.h"):
            home = f"src/{target}" if "/" in target else f"{'/'.join(parts[:-1])}/{target}"
            if not path.startswith("/".join(home.split("/")[:2]) + "/"):
                report.error(path, line, f'"{target}" is for the files of its own folder')
        if parts[0] != "src":
            continue
        layer = parts[1]
        if quote == "<":
            for lib, users in libraries.items():
                if target.startswith(lib) and layer not in users:
                    report.error(path, line, f"<{target}> is for {' '.join(users)} only")
        elif "/" in target and not target.startswith("tandem/"):
            other = target.split("/")[0]
            if not (ROOT / "src" / other).is_dir():
                continue  # a subfolder of the including one
            if other != layer and other not in layers.get(layer, ()):
                report.error(path, line, f'{layer} may not include "{target}" (tools/deps.txt)')
report.done()
