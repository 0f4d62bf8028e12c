#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md quotes texts that the program has: the first column of its tables, with
`...` for what differs from case to case. Each quote must be found in a string of src/ or cmd/."""
import re
from source import Report, files, read, strip_c

PAGE = "docs/troubleshooting.md"
# Strings in a row are one; so are those with a macro between, as in "%" PRIu64 " steps".
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*(?:[A-Z][A-Za-z0-9_]*\s*)?"(?:\\.|[^"\\\n])*")*')
PART = re.compile(r'"((?:\\.|[^"\\\n])*)"')

report = Report("quotes")
texts = []
for path in files(".c", ".h", ".def"):
    if path.startswith(("src/", "cmd/")):
        for string in STRING.findall(strip_c(read(path), keep_strings=True)):
            texts.append("".join(PART.findall(string)).replace('\\"', '"'))
everything = "\n".join(texts)

n_quotes = 0
for number, line in enumerate(read(PAGE).splitlines(), 1):
    quote = re.match(r"\| `([^`]+)` \|", line)
    if not quote:
        continue
    n_quotes += 1
    fixed = [re.escape(part) for part in quote[1].split("...") if part]
    if not fixed or not re.search("[^\n]*".join(fixed), everything):
        report.error(PAGE, number, f"no string of the program has this text: {quote[1]}")
if not n_quotes:
    report.error(PAGE, 0, "quotes nothing")
report.done()
