#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libtandem.so exports exactly the TD_API functions of include/tandem; libtandem.a td_ names."""
import re
import subprocess
import sys
from source import Report, files, read, strip_c

report = Report("symbols")
build = sys.argv[1]


def nm(*args):
    out = subprocess.run(["nm", "--defined-only", *args], check=True, capture_output=True,
                         text=True).stdout
    return {line.split()[-1] for line in out.splitlines() if len(line.split()) == 3}


declared = {}
for path in files(".h"):
    if path.startswith("include/tandem/"):
        text = re.sub(r"^\s*#.*$", "", strip_c(read(path)), flags=re.M)
        for m in re.finditer(r"\bTD_API\b[^;{}]*?\b(\w+)\s*\(", text):
            declared[m[1]] = path
exported = nm("-D", f"{build}/libtandem.so")
for name in sorted(set(declared) - exported):
    report.error(declared[name], 0, f"{name} is declared TD_API but libtandem.so does not have it")
for name in sorted(exported - set(declared)):
    report.error("libtandem.so", 0, f"exports {name}, which no public header declares TD_API")
for name in sorted(nm("-g", f"{build}/libtandem.a")):
    if not name.startswith("td_"):
        report.error("libtandem.a", 0, f"global symbol {name} has no td_ prefix")
report.done()
