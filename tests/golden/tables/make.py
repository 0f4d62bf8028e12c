#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two small tables, and what pandas and scikit-learn make of them (test_golden_tables.c):

    train.csv      measured; its missing cells are written in all the ways that pandas knows
    new.csv        read by what was measured on train.csv; has categories that train.csv has not
    expected.json  the numbers that pandas and scikit-learn give, in double

StandardScaler divides by n and so does our stage `normalize` (pandas' std() divides by n - 1). It
is measured on the values that a sample holds, which are f32.

    python3 tests/golden/tables/make.py        (pandas 3.1.1, scikit-learn 1.9.1)
"""
import csv
import json
import random
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from pandas._libs.parsers import STR_NA_VALUES
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, TimeSeriesSplit
from sklearn.preprocessing import (KBinsDiscretizer, LabelEncoder, OneHotEncoder, OrdinalEncoder,
                                   StandardScaler)

HERE = Path(__file__).resolve().parent
ROWS, NUMBERS = 45, ["age", "income", "one", "small"]
MISSING = sorted(STR_NA_VALUES)
WORDS = ["none", "missing", "-", "?", "Nan", "N.A.", "nil", "NONE", "0", "na", "<na>", "nAn"]
random.seed(3)


def write_tables():
    unused = list(MISSING)
    random.shuffle(unused)

    def cell(text, share):
        if random.random() >= share:
            return text
        return unused.pop() if unused else random.choice(MISSING)

    with open(HERE / "train.csv", "w", newline="\n") as f:
        f.write("age,income,one,small,city,kind\n")
        for i in range(ROWS):
            age = cell(str(random.randrange(18, 80)), 0.2)
            income = cell(random.choice([f"{random.uniform(1e3, 9e4):.3f}",
                                         f"{random.uniform(1, 9):.12e}"]), 0.2)
            small = f"{random.gauss(1e-5, 1e-6):.17g}"
            city = cell(random.choice(["Oslo", "Rome", "Bonn", "São Paulo"]), 0.15)
            f.write(f"{age},{income},7.5,{small},{city},{random.choice('cab')}\n")
    with open(HERE / "new.csv", "w", newline="\n") as f:
        f.write("city,small,one,age,income\n")
        for city, age, income in (("Oslo", "33", "NA"), ("Paris", "", "1e3"), ("", "18", "-2.5"),
                                  ("Rome", "null", "7"), ("oslo", "80", "0.1")):
            f.write(f"{city},{random.gauss(1e-5, 1e-6):.17g},8,{age},{income}\n")


def read(name):
    table = pd.read_csv(HERE / name)
    lines = (HERE / name).read_text().splitlines()
    for row, texts in zip(table.itertuples(), csv.DictReader(lines)):
        for column in NUMBERS:  # pandas' parser of numbers has been off by a unit in the last place
            value = getattr(row, column)
            assert np.isnan(value) or value == float(texts[column]), (name, row.Index, column)
    return table


def plain(x):
    """As JSON: numbers with all their digits, rows side by side."""
    return [int(v) if v == int(v) else v for v in np.asarray(x, np.float64).ravel().tolist()]


def samples(numbers, cities, encoder):
    return np.hstack([numbers, encoder.transform(cities)])


def cut(train):
    """The table in the order of its rows: 5 for training, which all is fitted on, 20 for validation
    and 20 for the test. One city is in the other parts alone."""
    parts = {"train": train[:5], "valid": train[5:25], "test": train[25:]}
    out = {}
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder.fit(parts["train"][["city"]].dropna())
    for how in ("mean", "median"):
        imputer = SimpleImputer(strategy=how).fit(parts["train"][NUMBERS])
        x = {name: samples(imputer.transform(part[NUMBERS]), part[["city"]], encoder)
             for name, part in parts.items()}
        held = {name: v.astype(np.float32).astype(np.float64) for name, v in x.items()}
        scaler = StandardScaler().fit(held["train"])
        out[how] = {"fill": plain(imputer.statistics_), "mean": plain(scaler.mean_),
                    "std": plain(scaler.scale_)}
        out[how] |= {name: plain(v) for name, v in x.items()}
        out[how] |= {f"{name}_scaled": plain(scaler.transform(v)) for name, v in held.items()}
    return out


def missing(train, new):
    out = {}
    present = train[["city"]].dropna()
    # A missing category is read as one that is unknown: all places are 0.
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(present)
    for word, how in (("mean", {"strategy": "mean"}), ("median", {"strategy": "median"}),
                      ("zero", {"strategy": "constant", "fill_value": 0})):
        imputer = SimpleImputer(**how).fit(train[NUMBERS])
        x = samples(imputer.transform(train[NUMBERS]), train[["city"]], encoder)
        y = samples(imputer.transform(new[NUMBERS]), new[["city"]], encoder)
        held_x, held_y = (v.astype(np.float32).astype(np.float64) for v in (x, y))
        scaler = StandardScaler().fit(held_x)
        out[word] = {"fill": plain(imputer.statistics_), "train": plain(x), "new": plain(y),
                     "mean": plain(scaler.mean_), "std": plain(scaler.scale_),
                     "train_scaled": plain(scaler.transform(held_x)),
                     "new_scaled": plain(scaler.transform(held_y))}
    whole = train.dropna(subset=[*NUMBERS, "city"])
    kept = OneHotEncoder(sparse_output=False).fit(whole[["city"]])
    out["drop"] = {"train": plain(samples(whole[NUMBERS].to_numpy(), whole[["city"]], kept))}
    return out


def in_order():
    """StandardScaler of a table of 30,000 rows in the order of time and of a label: the C test
    makes the same one."""
    i = np.arange(30000)
    table = np.stack([i / 8, i // 10000 * 100.0, i * 7919 % 1000 / 4], axis=1)
    scaler = StandardScaler().fit(table.astype(np.float32).astype(np.float64))
    return {"mean": plain(scaler.mean_), "std": plain(scaler.scale_)}


def bins(train):
    """Boundaries between KBinsDiscretizer's bins, and the bin of each row one-hot."""
    out = []
    ages = train[["age"]].fillna(train["age"].median())
    for strategy, more in (("uniform", {}), ("quantile", {
            "quantile_method": "averaged_inverted_cdf"})):
        k = KBinsDiscretizer(n_bins=4, encode="onehot-dense", strategy=strategy, **more).fit(ages)
        out.append({"boundaries": plain(k.bin_edges_[0][1:-1]), "x": plain(k.transform(ages))})
    return out


def folds():
    """For each (n, k): which fold each row validates in."""
    out = []
    for n, k in ((23, 5), (10, 3), (7, 7), (45, 4)):
        of = np.zeros(n)
        for i, (_, valid) in enumerate(KFold(k).split(np.zeros(n))):
            of[valid] = i
        out.append({"n": n, "folds": k, "fold": plain(of)})
    return out


def windows():
    """Windows over the rows of (age, small), the label `income` some rows later, and the last ones
    split off by TimeSeriesSplit with a gap that no row is on both sides of."""
    out = []
    rng = np.random.default_rng(4)
    x = rng.integers(0, 1000, (30, 2)) / 8
    for window, horizon, stride in ((3, 1, 1), (5, 2, 1), (4, 0, 1), (6, 3, 2)):
        seen = np.lib.stride_tricks.sliding_window_view(x, window, axis=0).transpose(0, 2, 1)
        label = pd.Series(x[:, 1]).shift(-(window - 1 + horizon)).to_numpy()[:len(seen)]
        good = ~np.isnan(label)
        seen, label = seen[good][::stride], label[good][::stride]
        item = {"window": window, "horizon": horizon, "stride": stride, "x": plain(seen),
                "y": plain(label)}
        if stride == 1:
            cut = TimeSeriesSplit(n_splits=2, test_size=6, gap=window - 1 + horizon)
            train, last = list(cut.split(seen))[-1]
            item |= {"train": plain(train), "valid": plain(last)}
        out.append(item)
    return {"rows": plain(x), "cases": out}


def main():
    warnings.simplefilter("error")
    write_tables()
    train, new = read("train.csv"), read("new.csv")
    assert set(train.dtypes[NUMBERS]) == {np.dtype("float64")}, train.dtypes
    warnings.simplefilter("ignore")  # unknown categories, which this is about
    ids = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1,
                         encoded_missing_value=-1).fit(train[["city"]])
    expected = {
        "missing_words": MISSING, "words": WORDS,
        "missing_share": plain(train[NUMBERS].isna().mean()),
        "least": plain(train[NUMBERS].min()), "most": plain(train[NUMBERS].max()),
        "classes": LabelEncoder().fit(train["kind"]).classes_.tolist(),
        "labels": plain(LabelEncoder().fit_transform(train["kind"])),
        "ids": {"train": plain(ids.transform(train[["city"]]) + 1),
                "new": plain(ids.transform(new[["city"]]) + 1)},
        "missing": missing(train, new), "cut": cut(train), "in_order": in_order(),
        "bins": bins(train), "folds": folds(),
        "windows": windows(),
    }
    (HERE / "expected.json").write_text(
        json.dumps(expected, ensure_ascii=False, separators=(",", ": "), indent=None)
        .replace('],"', '],\n"').replace('},"', '},\n"') + "\n")


main()
