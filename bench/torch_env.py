# SPDX-License-Identifier: Apache-2.0
"""The Python environment with PyTorch that the benchmarks share."""
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "torch/requirements.txt"


def environment(build, who):
    """Its interpreter, made in BUILD/venv-torch on first use; `who` asks for it."""
    python = build / "venv-torch/bin/python"
    if not (build / "venv-torch/ready").exists():
        print(f"{who}: making a Python environment with PyTorch (once; takes minutes) ...",
              flush=True)
        subprocess.run([sys.executable, "-m", "venv", build / "venv-torch"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "-r", REQUIREMENTS], check=True)
        (build / "venv-torch/ready").touch()
    return python
