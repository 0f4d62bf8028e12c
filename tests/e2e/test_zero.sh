#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# parallel.zero as a user sees it: the digest of one rank at every stage, over shared memory and
# TCP, going on at another stage; memory that is planned by `tandem check -n`, told at the end of a
# run, less at every stage, and about as planned.
. "$(dirname "$0")/lib.sh"

sanitized=$(grep -c '^TD_SANITIZE:STRING=.' "$build/CMakeCache.txt")

cat >job.yaml <<'JOB'
name: net
model:
  - {conv2d: 4, kernel: 3, stride: 2}
  - batch_norm
  - relu
  - flatten
  - dropout: 0.2
  - linear: 96
  - relu
  - linear
data: {source: digits, count: 200, maps: [{crop: 24}]}
train: {batch: 32, epochs: 2, accumulate: 2, optimizer: {name: lamb, lr: 0.01}, clip: 1}
JOB

run 0 "$tandem" train job.yaml -q
want=$(digest)
[ -n "$want" ] || fail "no digest"
for zero in 1 2 3; do
    run 0 "$tandem" train job.yaml -q -n $((zero + 1)) --set parallel.zero=$zero
    same "stage $zero"
    run 0 "$tandem" train job.yaml -q -n 3 --set parallel.zero=$zero --set parallel.transport=tcp
    same "stage $zero over tcp"
done
run 0 "$tandem" train job.yaml -q --set parallel.zero=3 # alone there is nothing to slice
same "one rank"
run 0 "$tandem" train job.yaml -q -n 3 --set parallel.zero=2 --set train.steps=3 --run-dir half
run 0 "$tandem" train job.yaml --resume=half -q -n 2 --set parallel.zero=3
same "going on at stage 3"

run 2 "$tandem" train job.yaml -q --set parallel.zero=4
has 'parallel.zero: expected a whole number from 0 to 3'
run 2 "$tandem" train job.yaml -q -n 2 --set parallel.zero=2 --set parallel.threads=2
has 'one compute thread'
run 2 "$tandem" check job.yaml -q --set parallel.zero=1 --set parallel.compress=bf16
has 'parallel.zero must be 0'

# A model whose weights matter: 3.1 M of them, 12 MB, with adam 36.
cat >big.yaml <<'JOB'
name: big
model: [flatten, {linear: 1200}, relu, {linear: 1200}, relu, {linear: 600}, relu, linear]
data: {source: digits, count: 64, split: {valid: 0}}
train: {batch: 64, steps: 2, micro_batches: 2, optimizer: adam}
log: {report: false, tensorboard: false}
JOB
run 0 "$tandem" check big.yaml -n 2
has 'memory of a rank, of 2 on this host'
for zero in 0 1 2 3; do has "^  zero $zero"; done
before=0 want=
for zero in 3 2 1 0; do
    run 0 "$tandem" train big.yaml -n 2 --set parallel.zero=$zero --run-dir big$zero
    [ -n "$want" ] || want=$(digest)
    same "big, stage $zero"
    has '^  memory .* on rank .* planned'
    end=$(grep '"kind": "end"' big$zero/metrics.jsonl)
    planned=$(grep -o '"memory_planned": [0-9]*' <<<"$end" | grep -o '[0-9]*$')
    peak=$(grep -o '"memory_peak": [0-9]*' <<<"$end" | grep -o '[0-9]*$')
    [ "$peak" -gt $((before + 2000000)) ] || fail "stage $zero: $peak bytes, the next one $before"
    if [ "$sanitized" = 0 ]; then # sanitizers have memory of their own
        [ $((peak * 10)) -lt $((planned * 14)) ] || fail "stage $zero: $peak, planned $planned"
        [ $((peak * 14)) -gt $((planned * 10)) ] || fail "stage $zero: $peak, planned $planned"
    fi
    before=$peak
done
# Shards of other sizes (a last batch, validation, the test) have runners of their own, which do not
# keep the kernels' own formats of the weights.
run 0 "$tandem" train big.yaml -n 2 --set parallel.zero=3 --run-dir sizes --set data.count=150 \
    --set data.split.valid=0.2 --set train.steps=6 \
    --set model.layers.1.out=2000 --set model.layers.3.out=2000
end=$(grep '"kind": "end"' sizes/metrics.jsonl)
planned=$(grep -o '"memory_planned": [0-9]*' <<<"$end" | grep -o '[0-9]*$')
peak=$(grep -o '"memory_peak": [0-9]*' <<<"$end" | grep -o '[0-9]*$')
[ "$sanitized" != 0 ] || [ $((peak * 10)) -lt $((planned * 12)) ] ||
    fail "many sizes: $peak, planned $planned"
echo "test_zero: good"
