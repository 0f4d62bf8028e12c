#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The coefficients of src/backend/cpu/kernels/vmath.h: prints, per function, the largest relative
error of the fit and the coefficients, lowest power first. Needs mpmath.

Remez' exchange on the relative error of P(z)/Q(z), Q(0) = 1. The equations at the nodes,
    P(z) = f(z) (1 +- level) Q(z),
are not linear in (P, Q, level) together; each pass solves them linearised about the last level."""
from mpmath import mp, mpf, cos, pi, exp, log, sin, tanh, erf, sqrt, matrix, lu_solve

mp.dps = 50
GRID = 1200


def horner(c, z):
    r = mpf(0)
    for k in reversed(c):
        r = r * z + k
    return r


def solve(f, nodes, n_num, n_den, level, den):
    m = len(nodes)
    a, b = matrix(m, m), matrix(m, 1)
    for i, z in enumerate(nodes):
        sign = (-1) ** i
        target = f(z) * (1 + sign * level)
        for k in range(n_num):
            a[i, k] = z**k
        for k in range(n_den):
            a[i, n_num + k] = -target * z ** (k + 1)
        a[i, m - 1] = -sign * f(z) * horner(den, z)
        b[i] = target
    c = lu_solve(a, b)
    return [c[k] for k in range(n_num)], [mpf(1)] + [c[n_num + k] for k in range(n_den)], c[m - 1]


def remez(f, lo, hi, n_num, n_den):
    lo, hi, m = mpf(lo), mpf(hi), n_num + n_den + 1
    # Cosine spacing; the offset keeps z = 0, where some f are limits, off the grid.
    grid = [lo + (hi - lo) * (1 - cos(pi * (i + mpf(0.5)) / GRID)) / 2 for i in range(GRID)]
    y = [f(z) for z in grid]
    nodes = [lo + (hi - lo) * (1 - cos(pi * (i + mpf(0.5)) / m)) / 2 for i in range(m)]
    level, den = mpf(0), [mpf(1)]
    for _ in range(15):
        for _ in range(6):
            num, den, change = solve(f, nodes, n_num, n_den, level, den)
            level += change
        e = [horner(num, z) / horner(den, z) / v - 1 for z, v in zip(grid, y)]
        peaks = []
        for i, v in enumerate(e):
            if peaks and (v > 0) == (e[peaks[-1]] > 0):
                if abs(v) > abs(e[peaks[-1]]):
                    peaks[-1] = i
            else:
                peaks.append(i)
        while len(peaks) > m:
            peaks.pop(0 if abs(e[peaks[0]]) < abs(e[peaks[-1]]) else -1)
        worst = max(abs(v) for v in e)
        if len(peaks) < m or worst < abs(level) * mpf("1.01"):
            break
        nodes = [grid[i] for i in peaks]
        if (e[peaks[0]] > 0) != (level > 0):
            level = -level
    return num, den, worst


def show(name, fit):
    num, den, worst = fit
    print(f"{name}: error {mp.nstr(worst, 3)}")
    print("  num", ", ".join(mp.nstr(c, 10) for c in num))
    if len(den) > 1:
        print("  den", ", ".join(mp.nstr(c, 10) for c in den))


if __name__ == "__main__":
    h = log(mpf(2)) / 2
    q = pi / 4
    # exp(r) = 1 + r + r^2 P(r)
    show("exp", remez(lambda r: (exp(r) - 1 - r) / r**2, -h, h, 5, 0))
    # log(1 + f) = f - f^2/2 + f^3 P(f)
    show("log", remez(lambda f: (log(1 + f) - f + f * f / 2) / f**3,
                      sqrt(mpf(0.5)) - 1, sqrt(mpf(2)) - 1, 9, 0))
    # sin(r) = r + r^3 P(r^2), cos(r) = 1 - r^2/2 + r^4 P(r^2)
    show("sin", remez(lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z, 0, q * q, 3, 0))
    show("cos", remez(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, 0, q * q, 3, 0))
    # tanh(x) = x P(x^2) / Q(x^2), and erf likewise, up to where they round to 1
    show("tanh", remez(lambda z: tanh(sqrt(z)) / sqrt(z), 0, 81, 6, 4))
    show("erf", remez(lambda z: erf(sqrt(z)) / sqrt(z), 0, mpf("15.4"), 6, 5))
