# SPDX-License-Identifier: Apache-2.0
"""The Python environment with PyTorch that the benchmarks share."""
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "torch/requirements.txt"


def environment(build, who):
    """Its interpreter, made in BUILD/venv-torch on first use; `who` asks for it. One that was made
    for a shorter list of packages gets the others."""
    python, ready = build / "venv-torch/bin/python", build / "venv-torch/ready"
    wanted = REQUIREMENTS.read_text()
    if not ready.exists() or ready.read_text() != wanted:
        print(f"{who}: making a Python environment with PyTorch (once; takes minutes) ...",
              flush=True)
        subprocess.run([sys.executable, "-m", "venv", build / "venv-torch"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "-r", REQUIREMENTS], check=True)
        ready.write_text(wanted)
    return python
