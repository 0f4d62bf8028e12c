# SPDX-License-Identifier: Apache-2.0
"""Shared by the lint scripts: which files there are, C text without comments, how to report."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = "tests/fuzz/corpus/"  # inputs of fuzzers: broken on purpose


def files(*suffixes):
    """Files of the tree, tracked or not yet added, as paths relative to the root, sorted."""
    out = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard",
                          "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = sorted(set(out.split("\0")) - {""})
    return [n for n in names if (not suffixes or n.endswith(suffixes)) and (ROOT / n).is_file()
            and not n.startswith(CORPUS)]


def read(name):
    """A file's text, or None if it is not text."""
    data = (ROOT / name).read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def strip_c(text, keep_strings=False):
    """C without comments (and strings); line numbers stay."""
    def blank(m):
        s = m.group()
        if keep_strings and s[0] in "\"'":
            return s
        return "\n" * s.count("\n") + ('""' if s[0] == '"' else " ")
    return _TOKEN.sub(blank, text)


class Report:
    """Collects complaints; exits with 1 if there were any."""

    def __init__(self, name):
        self.name, self.errors = name, 0

    def error(self, path, line, text):
        self.errors += 1
        print(f"{path}:{line}: {text}" if line else f"{path}: {text}")

    def done(self):
        sys.exit(1 if self.errors else 0)
