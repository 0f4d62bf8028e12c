#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tandem find-lr: the rate that it suggests trains, where a hundredth of it does not get far; check
# --graph draws the model; wrong input.
. "$(dirname "$0")/lib.sh"
cat >"$mark" <<'JOB'
name: digits
model: [flatten, {linear: 32, act: relu}, linear]
data: {source: digits, count: 1000, split: {valid: 0.2}}
train: {batch: 32, epochs: 3, optimizer: {name: adam, lr: 1}, eval: {every: never}}
checkpoint: {every: end}
log: {tensorboard: false, report: false}
JOB
run 0 "$tandem" find-lr "$mark"
has 'the loss falls fastest at'
has '<- steepest'
[ ! -e runs ] || fail "it leaves a run"
rate=$(limited "$tandem" find-lr "$mark" -q) || fail "status $?"
has "train.optimizer.lr=$rate\$"
loss() { grep -o 'loss [0-9.]*' out | head -n 1 | cut -d ' ' -f 2; }
run 0 "$tandem" train "$mark" -q --set "train.optimizer.lr=$rate"; good=$(loss)
run 0 "$tandem" train "$mark" -q --set "train.optimizer.lr=${rate}e-2"; low=$(loss)
run 0 "$tandem" train "$mark" -q; high=$(loss)
awk "BEGIN { exit !($good < 0.6 * $low && $good < 0.6 * $high) }" ||
    fail "rate $rate: loss $good; a hundredth of it: $low; rate 1: $high"
run 0 "$tandem" find-lr "$mark" -o lr.html
grep -q 'learning rate</text>' lr.html || fail "no axis in lr.html"
run 2 "$tandem" find-lr "$mark" --from 1 --to 0.1; has "^tandem find-lr: --to: 0.1 is not above"
run 2 "$tandem" find-lr "$mark" --from 0; has "^tandem find-lr: --from: expected a number above 0"
run 2 "$tandem" find-lr "$mark" --steps 3; has "^tandem find-lr: --steps"
run 2 "$tandem" find-lr "$mark" --from 1e-12 --to 1e-11; has "the loss never falls between"
run 2 "$tandem" find-lr nosuch.yaml; has "nosuch.yaml"
cp "$mark" own.yaml
run 2 "$tandem" find-lr own.yaml -o own.yaml; has "^tandem find-lr: --output: expected FILE.html"
cmp -s "$mark" own.yaml || fail "the page is where the job was"

# The model as a picture.
run 0 "$tandem" check "$mark" -q --graph m.svg
for text in linear1.weight '(32, 784)' softmax_cross_entropy; do
    grep -qF "$text" m.svg || fail "no $text in m.svg"
done
python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' m.svg || fail "m.svg is no XML"
run 0 "$tandem" check "$mark" -q --graph m.dot
grep -q '^digraph' m.dot && grep -q 'n[0-9]* -> n[0-9]*;' m.dot || fail "m.dot"
run 2 "$tandem" check "$mark" -q --graph m.png; has "expected FILE.dot or FILE.svg"
run 2 "$tandem" check "$mark" -q --graph nosuch/m.svg; has "no such directory"
