#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files beside it with NumPy and Python's safetensors: what other programs write.

    python3 make.py [verify DIR]

verify reads back what test_tensor_files left in DIR (run it with TD_KEEP_FILES=DIR) and compares.
"""
import os
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
A = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
B = np.int64(-7)


def make():
    os.chdir(HERE)
    np.savez("stored.npz", a=A, b=B)
    np.savez_compressed("deflated.npz", a=A, b=B)
    np.save("fortran_big_endian.npy", np.asfortranarray(A.astype(">f4")))
    np.save("bool.npy", np.array([True, False, True]))
    save_file({"b": np.arange(3, dtype=np.uint8), "a": A}, "python.safetensors",
              metadata={"made by": "Python"})


def verify(folder):
    os.chdir(folder)
    for name in ("stored.npz", "deflated.npz"):
        with np.load(name) as z:
            assert sorted(z.files) == ["a", "b", "empty"], z.files
            assert z["a"].dtype == np.float32 and (z["a"] == A).all()
            assert z["b"].shape == () and z["b"] == B
            assert z["empty"].shape == (3, 0)
    a = np.load("transposed.npy")
    assert a.dtype == np.float32 and (a == A.T).all()
    t = load_file("tandem.safetensors")
    assert (t["a"] == A.T).all() and t["b"].shape == () and t["b"] == B
    assert t["empty"].shape == (3, 0)
    assert (t["\u00fc \"quoted\"\n"] == np.arange(3, dtype=np.uint8)).all()
    with safe_open("tandem.safetensors", "np") as f:
        assert f.metadata() == {"format": "pt", "k\u00e4se": "\t"}, f.metadata()
    print("ok")


if __name__ == "__main__":
    verify(sys.argv[2]) if sys.argv[1:2] == ["verify"] else make()
