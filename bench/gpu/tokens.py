#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tokens.py FILE COUNT: a token file of llm.c with random tokens."""
import array
import random
import sys

count = int(sys.argv[2])
random.seed(1)
header = array.array("i", [20240520, 1, count] + [0] * 253)
tokens = array.array("H", random.choices(range(50257), k=count))
with open(sys.argv[1], "wb") as out:
    header.tofile(out)
    tokens.tofile(out)
