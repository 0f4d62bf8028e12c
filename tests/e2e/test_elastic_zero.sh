#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Elastic training with parallel.zero, with real processes: kill -9 of ranks at every stage, slices
# from mirrors and not from disk; a world that grows and shrinks; both holders of a slice killed;
# the memory of mirrors, planned and measured; a sweep of kills.
. "$(dirname "$0")/lib.sh"

sanitized=$(grep -c '^TD_SANITIZE:STRING=.' "$build/CMakeCache.txt")

cat >"$mark" <<'JOB'
name: spirals
model: [{linear: 64, act: relu}, batch_norm, {dropout: 0.1}, {linear: 96, act: relu}, linear]
loss: cross_entropy
data:
  source: spirals
  count: 500
  split: {valid: 0.1, test: 0.1}
train:
  batch: 64
  steps: 24
  eval: {every: 12}
  clip: {norm: 1}
  optimizer: {name: adam, lr: 0.01}
checkpoint: {every: end}
JOB
run 0 "$tandem" train "$mark" -q --run-dir quiet
want=$(digest)

# elastic NAME ARGUMENTS...: the quiet run's digest, metrics and checkpoint. Where nobody is stopped
# the lease is long: there are no faults by load.
elastic() {
    local name=$1 lease=10s; shift
    case $name in *stop*) lease=1s ;; esac
    rm -rf run
    run 0 "$tandem" train "$mark" -q --run-dir run --elastic --lease $lease "$@"
    same "$name"
    every_step "$name" 24
    like_quiet "$name" {model,optimizer}.safetensors
    none_left "$name"
}

for zero in 1 2 3; do
    while read -r ranks faults; do
        elastic "stage $zero, $faults" -n "$ranks" --set parallel.zero=$zero --faults "$faults"
        grep -q 'fault: ' out || fail "stage $zero, $faults: never happened"
        ! grep -q 'the run goes back' out || fail "stage $zero, $faults: a slice was lost"
    done <<'CASES'
3 kill rank=2 at=step:17:allreduce:1
3 kill rank=0 at=step:12; kill rank=1 at=step:20:send
4 stop rank=1 for=3s at=step:8
CASES
done
elastic 'over tcp' -n 3 --set parallel.zero=3 --set parallel.transport=tcp \
    --faults 'kill rank=1 at=step:9:comm:4'

# Both holders of a slice at once: the run begins again, and says so.
long() { # ARGUMENTS...
    rm -rf run
    "$tandem" train "$mark" -q --run-dir run --elastic --set train.steps=150 \
        --lease 10s --faults "$(slowly)" "$@" >out 2>&1 &
    pid=$!
}
process() { "$tandem" status run | awk -v r="$1" '$1 == r { print $3 }'; }
# good NAME: it ends well, and as if nothing had happened
good() {
    wait $pid || fail "$1: status $?"
    same "$1"
    every_step "$1" 150
    none_left "$1"
}
run 0 "$tandem" train "$mark" -q --run-dir long --set train.steps=150
want=$(digest)
both() {
    long -n 4 --set parallel.zero=2
    while_it_runs step 5 && kill -9 "$(process 1)" "$(process 2)" &&
        while_it_runs said 'generation [2-9]' || return 1
    good 'both holders'
}
patiently both

# Grow from 2 to 4, shrink to 1, grow again: from memory alone.
scaled() {
    long -n 2 --set parallel.zero=$zero
    while_it_runs step 3 && while_it_runs test -e run/control && "$tandem" scale run 4 >/dev/null &&
        while_it_runs said 'now 4 ranks (generation [0-9]*)' && "$tandem" scale run 1 >/dev/null &&
        while_it_runs said 'now 1 rank (generation [0-9]*):' && "$tandem" scale run 3 >/dev/null ||
        return 1
    good "scale, stage $zero"
}
for zero in 1 3; do
    patiently scaled
    ! grep -q 'the run goes back' out || fail "scale, stage $zero: a slice was lost"
done

# Mirrors are memory: planned, and about as planned.
cat >big.yaml <<'JOB'
name: big
model: [flatten, {linear: 1200}, relu, {linear: 1200}, relu, {linear: 600}, relu, linear]
data: {source: digits, count: 64, split: {valid: 0}}
train: {batch: 64, steps: 2, micro_batches: 4, optimizer: adam}
log: {report: false, tensorboard: false}
JOB
run 0 "$tandem" check big.yaml -n 3 --elastic
has 'memory of an elastic rank, of 3 on this host'
has ' total on resize$'
for zero in 1 2 3; do
    run 0 "$tandem" train big.yaml -n 3 --elastic --set parallel.zero=$zero --run-dir big$zero
    end=$(grep '"kind": "end"' big$zero/metrics.jsonl)
    planned=$(grep -o '"memory_planned": [0-9]*' <<<"$end" | grep -o '[0-9]*$')
    peak=$(grep -o '"memory_peak": [0-9]*' <<<"$end" | grep -o '[0-9]*$')
    [ "$sanitized" != 0 ] || { [ $((peak * 10)) -lt $((planned * 14)) ] &&
        [ $((peak * 14)) -gt $((planned * 10)) ]; } || fail "stage $zero: $peak, planned $planned"
done

cat >"$mark" <<'JOB'
name: spirals
model: [{linear: 24, act: relu}, batch_norm, linear]
loss: cross_entropy
data: {source: spirals, count: 100, split: {valid: 0}}
train: {steps: 3, batch: 16, micro_batches: 2, optimizer: adam}
JOB
timeout 800 "$tandem" train "$mark" -n 2 --faults-sweep -q --set parallel.zero=1 >out 2>&1 ||
    fail "status $?"
grep -q ', 0 did not' out || fail "cases that differ"
none_left "the sweep"
echo "test_elastic_zero: good"
