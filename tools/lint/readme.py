#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/source-map.md names every folder, and no folder that is not there. Every page and picture of
docs/ is named by another document, and docs/layers.svg shows every layer of tools/deps.txt."""
import re
from source import ROOT, Report, files, read

MAP = "docs/source-map.md"

report = Report("readme")
folders = set()
for path in files():
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folders.add("/".join(parts[:depth]))
folders -= {"cmd", "include", "src", "tests"}  # only hold the folders below them
run = "tests/golden/old_run/"  # as a run writes it, with folders of its own
folders = {folder for folder in folders if not folder.startswith(run)}
mapped = set(re.findall(r"^\s*([\w.][\w./-]*)/\s{2,}\S", read(MAP), re.M))
for folder in sorted(folders - mapped):
    report.error(MAP, 0, f"the source map lacks {folder}/")
for folder in sorted(mapped):
    if not (ROOT / folder).is_dir():
        report.error(MAP, 0, f"the source map names {folder}/, which does not exist")
documents = {path: read(path) for path in files(".md")}
for page in sorted(path for path in files() if path.startswith("docs/")):
    if not any(page in text for path, text in documents.items() if path != page):
        report.error(page, 0, "no other document names this page")
layers = set(re.findall(r"^layer (\w+):", read("tools/deps.txt"), re.M))
shown = set(re.findall(r'class="name"[^>]*>([\w/]+)<', read("docs/layers.svg")))
for layer in sorted(layers - shown):
    report.error("docs/layers.svg", 0, f"the picture lacks the layer {layer}")
for layer in sorted(shown - layers - {"cmd/tandem"}):
    report.error("docs/layers.svg", 0, f"the picture shows {layer}, which is no layer")
report.done()
