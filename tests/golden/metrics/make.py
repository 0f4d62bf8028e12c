#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predictions and what scikit-learn says of them (tests/golden/test_golden_metrics.c), in
expected.json.

Classes: probabilities (n, classes) are multiples of 1/1024, so that f32 has them exactly and some
of them are equal; the class said is the first of the largest. Targets of -100 do not count: they
are taken out before scikit-learn sees them. What is never predicted has precision 0
(zero_division=0); the area under the curve of a class without samples is not a number (null).

    python3 tests/golden/metrics/make.py        (scikit-learn 1.9.1)
"""
import json
import math
import warnings
from pathlib import Path

import numpy as np
from sklearn import metrics

HERE = Path(__file__).resolve().parent
rng = np.random.default_rng(11)


def probabilities(n, classes, truth, skill, never=None):
    x = rng.random((n, classes)) ** 2
    for i, t in enumerate(truth):
        if t >= 0 and rng.random() < skill:
            x[i, t] += 1
    if never is not None:
        x[:, never] /= 50
    x = np.round(x / x.sum(1, keepdims=True) * 1023)
    x[np.arange(n), x.argmax(1)] += 1024 - x.sum(1)  # rows are whole: 1
    return x


def numbers(x):
    return [None if math.isnan(v) else int(v) if v == int(v) else v
            for v in np.asarray(x, np.float64).ravel().tolist()]


def classes(name, n, classes, weights, skill, ignored=0.0, never=None):
    truth = rng.choice(classes, n, p=weights)
    truth[rng.random(n) < ignored] = -100
    p1024 = probabilities(n, classes, truth, skill, never)
    kept = truth >= 0
    t, p, labels = truth[kept], p1024[kept] / 1024, list(range(classes))
    said = p.argmax(1)
    each = metrics.precision_recall_fscore_support(t, said, labels=labels, zero_division=0)
    mean = metrics.precision_recall_fscore_support(t, said, labels=labels, zero_division=0,
                                                   average="macro")
    weighted = metrics.precision_recall_fscore_support(t, said, labels=labels, zero_division=0,
                                                       average="weighted")
    if classes == 2:
        area = metrics.roc_auc_score(t, p[:, 1])
        areas = [metrics.roc_auc_score(t == 0, p[:, 0]), area]
    else:
        areas = [metrics.roc_auc_score(t == k, p[:, k]) for k in labels]
        area = math.nan if any(map(math.isnan, areas)) else metrics.roc_auc_score(
            t, p, multi_class="ovr", average="macro", labels=labels)
    # Of equal ones we take the first class, as argmax does, top_k_accuracy_score the last.
    untied = p - np.arange(classes) * 1e-9
    top = {str(k): metrics.top_k_accuracy_score(t, untied, k=k, labels=labels)
           for k in (1, 3, 5) if 2 < classes > k}
    return {"name": name, "classes": classes, "p1024": numbers(p1024), "truth": numbers(truth),
            "confusion": numbers(metrics.confusion_matrix(t, said, labels=labels)),
            "accuracy": metrics.accuracy_score(t, said), "precision": numbers(each[0]),
            "recall": numbers(each[1]), "f1": numbers(each[2]), "support": numbers(each[3]),
            "macro": numbers(mean[:3]), "weighted": numbers(weighted[:3]), "auc": numbers(areas),
            "mean_auc": numbers([area])[0], "top": top}


def regression(name, said, truth):
    return {"name": name, "said": numbers(said), "truth": numbers(truth),
            "mae": metrics.mean_absolute_error(truth, said),
            "rmse": float(metrics.root_mean_squared_error(truth, said)),
            "r2": metrics.r2_score(truth, said)}


def main():
    warnings.simplefilter("ignore")  # scores that are not defined, which this is about
    x = rng.normal(size=100)
    small = rng.normal(size=50)
    expected = {
        "classes": [
            classes("binary", 100, 2, [0.6, 0.4], 0.4),
            classes("rare", 100, 2, [0.96, 0.04], 0.2),
            classes("seven", 90, 7, [0.3, 0.25, 0.2, 0.1, 0.08, 0.05, 0.02], 0.5),
            classes("ignored", 90, 4, [0.25] * 4, 0.6, ignored=0.3),
            classes("never said", 80, 4, [0.4, 0.3, 0.2, 0.1], 0.5, never=3),
            classes("never true", 60, 4, [0.5, 0.3, 0.2, 0], 0.5),
            classes("all right", 30, 6, [1 / 6] * 6, 1),
        ],
        "numbers": [
            regression("noise", x + rng.normal(size=100) / 3, x),
            regression("far from zero", 1e6 + small + rng.normal(size=50) / 9, 1e6 + small),
            regression("worse than the mean", -x, x),
            regression("exact", x[:20], x[:20]),
            regression("constant", rng.normal(size=20), np.full(20, 3.25)),
        ],
    }
    (HERE / "expected.json").write_text(
        json.dumps(expected, separators=(",", ": ")).replace(',"', ',\n"') + "\n")


main()
