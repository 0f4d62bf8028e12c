#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Ranks that are not in step, one of them slow: their run is repeated with the same bits, over
# another transport too, and so is the repetition; what is no record of such a run is one line.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: net
model: [{conv2d: 4, kernel: 3, stride: 2}, batch_norm, relu, flatten, {dropout: 0.2}, linear]
data: {source: digits, count: 300}
train: {batch: 48, epochs: 3, micro_batches: 6, optimizer: {name: adamw, lr: 0.01}, clip: 1}
parallel: {threads: 1}
log: {report: false}
JOB
# orders RUN: of messages, without the moments at which they were told
orders() { grep '"kind": "order"' "$1/metrics.jsonl" | sed 's/"step": [0-9]*, //' | sort; }
option() { case $1 in async-peer) echo window=4 ;; *) echo tau=2 ;; esac; }
for rule in async-peer aeasgd async-admm; do
    run 0 "$tandem" train "$mark" -q -n 3 --sync $rule --run-dir $rule \
        --set "train.sync.$(option $rule)" --faults 'slow rank=1 for=20ms at=step:3'
    first=$(digest)
    orders $rule >want
    [ -s want ] || fail "$rule: no order of messages"
    transport=$([ $rule = aeasgd ] && echo tcp || echo shm)
    run 0 "$tandem" train --replay $rule -q --run-dir $rule-again \
        --set parallel.transport=$transport
    [ "$(digest)" = "$first" ] || fail "$rule: the replay has other weights"
    orders $rule-again | cmp -s - want || fail "$rule: the replay has another order"
    run 0 "$tandem" train --replay $rule -q --set train.backend=far
    [ "$(digest)" = "$first" ] || fail "$rule: the replay has other weights on far"
done
of() { grep '"kind": "end"' "$1/metrics.jsonl" | grep -o 'sha256:[0-9a-f]*'; } # of RUN: its digest
run 0 "$tandem" train --replay async-peer-again -q -n 3
[ "$(digest)" = "$(of async-peer)" ] || fail "the replay of a replay has other weights"

# bad WHAT ARGUMENTS...: one line, status 2, before a rank starts
bad() {
    local what=$1; shift
    run 2 "$tandem" train "$mark" --run-dir never "$@"
    has "$what"
    [ "$(wc -l <out)" = 1 ] || fail "$*: more than a line"
    [ ! -e never ] || fail "$*: a folder was made"
}
peer=(-n 3 --sync async-peer --replay)
bad 'parallel.replay: only with parallel.servers, or a sync rule whose ranks are not in step' \
    -n 3 --replay async-peer
bad 'parallel.replay: only with parallel.servers' -n 3 --sync ma --replay async-peer
bad 'is of a run on 3 ranks, and there are 2' -n 2 --sync async-peer --replay async-peer
bad 'is of a run with the sync rule aeasgd, not async-peer' "${peer[@]}" aeasgd
bad 'cannot be read; expected the metrics.jsonl of a run with an asynchronous' "${peer[@]}" nowhere
bad 'cannot run on elastic ranks' "${peer[@]}" async-peer --elastic
mkdir torn lost other
head -c "$(($(wc -c <async-peer/metrics.jsonl) - 300))" async-peer/metrics.jsonl >torn/metrics.jsonl
bad 'not lines of JSON' "${peer[@]}" torn
grep -v '"rank": 2.*"met": 14' async-peer/metrics.jsonl >lost/metrics.jsonl
bad 'the meetings of rank 2 are not those of rank 0' "${peer[@]}" lost
sed '/"rank": 1/s/"counted": \[/&[0], /' async-peer/metrics.jsonl >other/metrics.jsonl
bad 'in steps 1 to 7 rank 1 applied other messages than ranks of this job send' "${peer[@]}" other
run 0 "$tandem" train "$mark" -q -n 3 --run-dir lockstep
bad 'no order of messages is in it' "${peer[@]}" lockstep

# A replay has the meetings of the run, and its length.
run 1 "$tandem" train --replay async-peer -q --set train.epochs=4
has 'ends at step 21, and the job has 28: set train.steps'
run 1 "$tandem" train --replay async-peer -q --set train.steps=10
has 'its ranks did not meet after step 10'
run 1 "$tandem" train --replay aeasgd -q --set train.eval.every=3
has 'its ranks did not meet after step 3, and those of this run do'
run 1 "$tandem" train --replay aeasgd -q --set train.eval.every=21 --set checkpoint.every=end
has 'its ranks met after step 7, to validate, to save or at the end, and those of this run do not'
run 0 "$tandem" train --replay aeasgd -q --set train.steps=14 --run-dir part
run 0 "$tandem" train -q --resume=part -n 3 --set train.steps=21
[ "$(digest)" = "$(of aeasgd)" ] || fail "a replay that was resumed has other weights"
none_left "the runs"
