#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Metrics that need all predictions at once (F1, AUC, R2, ...) at validation, on one rank and two,
# against a program that computes them from the predictions; weights of classes; the report.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { srand(5); print "a,b,kind"
    for (i = 0; i < 300; i++) { k = i % 10 < 7 ? 0 : i % 10 < 9 ? 1 : 2
        printf "%.3f,%.3f,%s\n", k + 2 * rand(), k - 2 * rand(),
            substr("catdogeel", 1 + 3 * k, 3) } }' >train.csv
cat >job.yaml <<'YAML'
name: kinds
model: [{linear: 16, act: relu}, linear]
metrics: [accuracy, precision, recall, f1, auc, top3]
data: {source: csv, train: train.csv, maps: [normalize], split: {valid: 0.2, test: 0.2}}
train:
  batch: 20
  epochs: 3
  optimizer: {name: adamw, lr: 0.02}
  early_stop: {watch: f1}
log: {tensorboard: false}
YAML
run 0 "$tandem" train job.yaml --run-dir one
has 'best  *valid f1'
want=$(digest)
run 0 "$tandem" train job.yaml --run-dir two -n 2
same "two ranks"
valid() { grep '"kind": "valid\|"kind": "eval' "$1/metrics.jsonl" | sed 's/"seconds": [^,}]*//g'; }
[ -n "$(valid one)" ] || fail "no validations"
[ "$(valid one)" = "$(valid two)" ] || fail "two ranks: other metrics"
for words in 'Confusion matrix' 'Classes of the test part' '<td class="name">eel</td>'; do
    grep -q "$words" one/report.html || fail "no '$words' in the report"
done

# The same numbers from the predictions, by definition.
run 0 "$tandem" predict one --part test -o said.csv
run 0 "$tandem" eval one --part test --scores --json
cat >check.py <<'PY'
import csv, json, math, sys
text = open("out").read()
said = json.loads(text[text.index("{"):])
rows = list(csv.DictReader(open("said.csv")))
true_key = [k for k in rows[0] if k in ("y", "true", "kind", "label", "target")]
names = ["cat", "dog", "eel"]
p = [[float(v) for k, v in r.items() if any(k.endswith(n) for n in names)] for r in rows]
pred = [r["predicted"] if "predicted" in r else r[list(r)[1]] for r in rows]
confusion = said["scores"]["confusion"]
n = sum(map(sum, confusion))
assert n == len(rows) == 60, (n, len(rows))
for k in range(3):  # what was predicted how often
    assert sum(confusion[i][k] for i in range(3)) == pred.count(names[k]), (confusion, k)
P = [confusion[k][k] / max(1, sum(confusion[i][k] for i in range(3))) for k in range(3)]
R = [confusion[k][k] / sum(confusion[k]) for k in range(3)]
F = [2 * a * b / (a + b) if a + b else 0 for a, b in zip(P, R)]
mean = lambda v: math.fsum(v) / len(v)
want = {"accuracy": sum(confusion[k][k] for k in range(3)) / n, "precision": mean(P),
        "recall": mean(R), "f1": mean(F), "top3": 1.0}
for name, v in want.items():
    for where in ("metrics", "scores"):
        got = said[where].get(name)
        assert got is None or abs(got - v) < (1e-8 if where == "metrics" else 1e-12), (name, got, v)
    assert name in said["metrics"], name
assert said["metrics"]["auc"] == float("%.9g" % said["scores"]["auc"])
PY
python3 check.py || fail "other metrics than by definition"

# A class that counts much is found more often. The loss is the weighted one.
run 0 "$tandem" train job.yaml --run-dir heavy --set loss.class_weights=[1,1,20]
run 0 "$tandem" eval heavy --part test --scores --json
cp out heavy.json
run 0 "$tandem" eval one --part test --scores --json
python3 - <<'PY' || fail "weights of classes do nothing"
import json
load = lambda f: json.loads((t := open(f).read())[t.index("{"):])["scores"]["confusion"]
light, heavy = load("out"), load("heavy.json")
said = lambda c: sum(row[2] for row in c)
assert said(heavy) > said(light), (light, heavy)
PY
run 2 "$tandem" check job.yaml --set loss.class_weights=[1,2]
has 'loss.class_weights: 2 numbers, but y has 3 classes'
run 2 "$tandem" check job.yaml --set loss.class_weights=[1,2,-1]
has 'expected numbers of at least 0'
run 2 "$tandem" check job.yaml --set loss.weighted_as=pytorch
has 'loss.weighted_as: needs loss.class_weights'
run 2 "$tandem" check job.yaml --set loss.class_weights=[1,2,3] --set loss.weighted_as=torch
has 'loss.weighted_as: '
run 2 "$tandem" check job.yaml --set metrics=[r2]
has 'metrics: r2 cannot be computed with the loss cross_entropy'
# All weights 1 is the plain loss, up to rounding.
loss() { grep -o '"loss": [0-9.e-]*' "$1/metrics.jsonl" | head -1 | cut -d ' ' -f 2; }
run 0 "$tandem" train job.yaml --run-dir ones --set loss.class_weights=[1,1,1]
python3 -c "import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-5 * a)" \
    "$(loss one)" "$(loss ones)" || fail "weights of 1: $(loss one), $(loss ones)"
# Divided by the sum of weights, all weights 2 are the plain loss too, with whatever else it has.
more=(--set loss.label_smoothing=0.1 --set loss.ignore=0)
run 0 "$tandem" train job.yaml --run-dir smooth "${more[@]}"
run 0 "$tandem" train job.yaml --run-dir twos "${more[@]}" --set loss.class_weights=[2,2,2] \
    --set loss.weighted_as=pytorch
python3 -c "import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-5 * a)" \
    "$(loss smooth)" "$(loss twos)" || fail "weights of 2: $(loss smooth), $(loss twos)"

# Numbers.
awk 'BEGIN { print "a,b,price"; for (i = 0; i < 200; i++)
    print i % 17 "," i % 23 "," 100 + 20 * (i % 17) - 7 * (i % 23) }' >houses.csv
cat >houses.yaml <<'YAML'
name: houses
model: [{linear: 16, act: relu}, linear]
metrics: [mae, rmse, r2]
data:
  source: csv
  train: houses.csv
  target: number
  maps: [normalize, {normalize: {field: y}}]
  split: {valid: 0.2, test: 0.2}
train: {batch: 20, epochs: 20, optimizer: {name: adamw, lr: 0.02}, early_stop: {watch: r2}}
YAML
run 0 "$tandem" train houses.yaml --run-dir houses
grep -q 'R2' houses/report.html || fail "no R2 in the report"
run 0 "$tandem" eval houses --part test --scores --json
python3 - <<'PY' || fail "RMSE and R2 at validation and in scores differ"
import json
said = json.loads((t := open("out").read())[t.index("{"):])
for k in ("rmse", "r2"):
    assert said["metrics"][k] == float("%.9g" % said["scores"][k]), said
assert said["scores"]["r2"] > 0.8, said
PY
