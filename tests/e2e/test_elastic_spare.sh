#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGTERM to a process that waits for a place: it goes at once, the ranks do not notice, and another
# one waits in its stead.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: spare
model: [{linear: 32, act: relu}, linear]
loss: cross_entropy
data: {source: spirals, count: 500}
train: {batch: 64, steps: 300, optimizer: {name: adam, lr: 0.01}, eval: {every: never}}
checkpoint: {every: end}
log: {report: false, tensorboard: false}
JOB
run 0 "$tandem" train "$mark" -q --run-dir quiet
want=$(digest)

waiting() { "$tandem" status run 2>/dev/null | awk '$1 == "-" { print $3 }'; }
one_waits() { [ "$(waiting | wc -w)" = 1 ]; }
another_waits() { one_waits && [ "$(waiting)" != "$spare" ]; }
gone() { ! kill -0 "$spare" 2>/dev/null; }
asked_to_go() {
    rm -rf run
    "$tandem" train "$mark" -q --run-dir run -n 2 --elastic --spares 1 --lease 10s \
        --faults "$(slowly)" >out 2>&1 &
    pid=$!
    while_it_runs one_waits || return 1
    spare=$(waiting)
    kill -TERM "$spare"
    while_it_runs gone && while_it_runs another_waits || return 1
    kill -TERM "$(waiting)" # also the one that came for it
    wait $pid || fail "a spare was asked to go: status $?"
    same 'a spare was asked to go'
    ! grep -q 'generation [2-9]' out || fail "a spare was asked to go: the ranks have noticed"
    none_left 'a spare that was asked to go'
}
patiently asked_to_go
