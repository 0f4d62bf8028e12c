#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A kill at every communication and file operation of three steps with three ranks: every case ends
# with the digest of the quiet run, and nothing is left behind.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: spirals
model: [{linear: 24, act: relu}, batch_norm, {dropout: 0.1}, linear]
loss: cross_entropy
data:
  source: spirals
  count: 300
  split: {valid: 0.1, test: 0.1}
train:
  steps: 3
  batch: 64
  clip: {norm: 1}
  optimizer: {name: adam, lr: 0.01}
JOB
timeout 800 "$tandem" train "$mark" -n 3 --faults-sweep -q >out 2>&1 || fail "status $?"
grep -q ', 0 did not' out || fail "cases that differ"
[ "$(grep -o '[0-9]* kills' out | grep -o '[0-9]*')" -gt 60 ] || fail "too few kills"
none_left "the sweep"
