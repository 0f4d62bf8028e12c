#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# Parameter servers as a user sees them: the digest of one rank where the rule promises it, on any
# number of workers and servers and over any transport; asynchronous runs train, are resumed on
# other numbers, and are replayed with the same bits; what is wrong is said before a rank starts.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: net
model: [{conv2d: 4, kernel: 3, stride: 2}, batch_norm, relu, flatten, {dropout: 0.2}, linear]
data: {source: digits, count: 300}
train: {batch: 48, epochs: 2, micro_batches: 6, optimizer: {name: adamw, lr: 0.01}, clip: 1}
parallel: {threads: 1}
log: {report: false}
JOB
run 0 "$tandem" train "$mark" -q
want=$(digest)

# same N SERVERS RULE [MORE...]: the bits of one rank
same() {
    local n=$1 servers=$2 rule=$3; shift 3
    run 0 "$tandem" train "$mark" -q -n "$n" --servers "$servers" --sync "$rule" "$@"
    [ "$(digest)" = "$want" ] || fail "$rule, $n workers, $servers servers $*: other weights"
}
for servers in 1 2; do
    same 1 $servers sync
    same 2 $servers sync
    same 1 $servers asgd
done
same 4 2 sync --set parallel.transport=tcp
same 1 1 stale
same 1 1 ssp --set train.sync.staleness=0
same 1 2 asgd --set parallel.transport=tcp
if [ -n "${TD_TEST_FULL:-}" ]; then
    for transport in shm tcp; do for servers in 1 2 3; do
        for n in 1 2 3 4; do same $n $servers sync --set parallel.transport=$transport; done
        for rule in asgd stale ssp; do
            same 1 $servers $rule --set parallel.transport=$transport
        done
    done; done
    for rule in sync asgd stale ssp downpour; do
        run 0 "$tandem" train "$source/examples/digits.yaml" -n 4 --servers 1 --sync $rule
        accuracy=$(grep -o 'test accuracy [0-9.]*' out | grep -o '[0-9.]*$')
        awk "BEGIN { exit !($accuracy >= 97.5) }" || fail "$rule: test accuracy $accuracy %"
    done
fi

# A run is resumed on other numbers of workers and servers; in lockstep with the same bits.
run 0 "$tandem" train "$mark" -q -n 2 --servers 1 --sync sync --set train.epochs=1 --run-dir again
run 0 "$tandem" train -q --resume=again -n 1 --servers 2 --set train.epochs=2
[ "$(digest)" = "$want" ] || fail "resumed: other weights"

# Asynchronous rules: a run, its replay, and going on with other numbers.
for rule in asgd stale ssp downpour; do
    transport=$([ $rule = stale ] && echo tcp || echo shm)
    run 0 "$tandem" train "$mark" -n 3 --servers 2 --sync $rule --run-dir $rule \
        --set parallel.transport=$transport
    has 'accuracy\|best loss'
    first=$(digest)
    python3 - $rule <<'PY' || fail "$rule: metrics.jsonl"
import json, sys
steps = [e for e in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if e["kind"] == "step"]
assert [e["step"] for e in steps] == list(range(1, len(steps) + 1)), steps
assert all(len(e["counted"]) == 1 and 2 <= e["counted"][0] < 5 for e in steps), steps[0]
PY
    run 0 "$tandem" train --replay $rule -q --run-dir $rule-again
    [ "$(digest)" = "$first" ] || fail "$rule: the replay has other weights"
    run 0 "$tandem" train -q --resume=$rule -n 2 --servers 1 --set train.epochs=3
done
# Workers that go on from their own params for a while; Adagrad on the server.
run 0 "$tandem" train "$mark" -q -n 2 --servers 1 --sync downpour --set train.sync.adagrad=true \
    --set train.sync.n_push=2 --set train.sync.n_fetch=4

# Bad input: one line, before any rank starts.
bad() { # TEXT ARGUMENTS...
    local text=$1; shift
    run 2 "$tandem" train "$mark" --run-dir never "$@"
    has "$text"
    [ "$(wc -l <out)" = 1 ] || fail "$*: more than a line"
    [ ! -e never ] || fail "$*: a folder was made"
}
bad 'no sync rule that uses servers is named' -n 2 --servers 1
bad 'ma cannot be combined with parallel.servers' -n 2 --servers 1 --sync ma
bad 'the sync rule asgd needs parallel.servers' -n 2 --sync asgd
bad 'staleness' -n 2 --servers 1 --sync asgd --set train.sync.staleness=2
bad 'cannot be combined with parallel.zero' -n 2 --servers 1 --sync asgd --set parallel.zero=1
bad 'train.verify: not with parallel.servers' -n 2 --servers 1 --sync asgd --set train.verify=0.5
bad 'not with elastic ranks' -n 2 --servers 1 --sync asgd --elastic
bad 'parallel.replay: only with parallel.servers' -n 2 --replay asgd
bad 'replay with as many' -n 2 --servers 1 --sync asgd --replay asgd
none_left "the runs"
