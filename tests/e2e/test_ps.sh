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
same 2 2 sync --set train.backend=far
same 1 1 asgd --set train.backend=far
if [ -n "${TD_TEST_FULL:-}" ]; then
    for transport in shm tcp; do for servers in 1 2 3; do
        for n in 1 2 3 4; do same $n $servers sync --set parallel.transport=$transport; done
        for rule in asgd stale ssp; do
            same 1 $servers $rule --set parallel.transport=$transport
        done
    done; done
    for rule in sync asgd stale ssp downpour; do
        run 0 "$tandem" train "$source/examples/digits.yaml" -q -n 4 --servers 1 --sync $rule
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
ages = [e["sync"] for e in steps if "sync" in e]
assert ages and all(a["age_max"] == a["age"] for a in ages), ages # of one push
PY
    run 0 "$tandem" train --replay $rule -q --run-dir $rule-again
    [ "$(digest)" = "$first" ] || fail "$rule: the replay has other weights"
    run 0 "$tandem" train -q --resume=$rule -n 2 --servers 1 --set train.epochs=3
done
# Workers that go on from their own params for a while; Adagrad on the server.
run 0 "$tandem" train "$mark" -q -n 2 --servers 1 --sync downpour --set train.sync.adagrad=true \
    --set train.sync.n_push=2 --set train.sync.n_fetch=4

# One word: mesh, servers and rule of a job.
for strategy in mirrored multi-worker; do
    run 0 "$tandem" train "$mark" -q -n 2 --strategy $strategy
    [ "$(digest)" = "$want" ] || fail "$strategy: other weights"
done
run 0 "$tandem" train "$mark" -q -n 1 --strategy parameter-server --run-dir strategy
[ "$(digest)" = "$want" ] || fail "parameter-server: other weights"
grep -q 'rule: asgd' strategy/job.yaml && grep -q 'servers: 1' strategy/job.yaml ||
    fail "parameter-server: not in the run's job.yaml"
run 0 "$tandem" train "$mark" -q -n 2 --strategy parameter-server --sync sync --servers 2
[ "$(digest)" = "$want" ] || fail "parameter-server with sync: other weights"

# kill -9 of a worker: the others go on to the end, and its batch is not lost.
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"kind": *"step"'; }
past() { [ "$(steps "$1")" -ge "$2" ]; }
pid_of() { # RANK
    pgrep -f "train .*-- $mark" | while read -r p; do
        grep -qz "^TANDEM_RANK=$1\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done
}
found() { pid=$(pid_of "$1"); [ -n "$pid" ]; } # before its time is short
# The third worker's batches, of which step 3 is the first, take so long that epochs end with it: it
# is at work, not idle nor between two pushes, whenever it is looked for.
slow=(--faults 'slow rank=4 for=20ms at=step:3')
ended() { ! kill -0 $launcher 2>/dev/null; }
ends() { # WHAT WANTED_STATUS: the run does, and soon
    soon ended || fail "$1: the run does not end"
    wait $launcher; got=$?
    [ $got = "$2" ] || fail "$1: $got"
}
for servers in 1 2; do
    "$tandem" train "$mark" -n 3 --servers $servers --sync asgd --run-dir=worker-$servers \
        --set train.epochs=120 --set train.eval.every=1000000 \
        --faults "slow rank=$((servers + 2)) for=20ms at=step:3" >out 2>&1 &
    launcher=$!
    soon found $((servers + 2)) || fail "the run did not start"
    soon past worker-$servers 3 || fail "the run made no steps"
    kill -9 "$pid"
    ends "kill -9 of a worker, $servers servers" 0
    has 'continues with 2 of 3 workers'
    none_left "the death of a worker"
    python3 - worker-$servers <<'PY' || fail "metrics.jsonl after the death of a worker"
import json, sys
steps = [e for e in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if e["kind"] == "step"]
assert [e["step"] for e in steps] == list(range(1, len(steps) + 1)), steps
epochs = {}
for e in steps:
    epochs[e["epoch"]] = epochs.get(e["epoch"], 0) + e["samples"]
assert len(epochs) == 120 and set(epochs.values()) == {max(epochs.values())}, epochs
PY
done
# One that stands still: another gets its batch, epochs go on, and it works again when it can; also
# where it adds up the gradients of two batches for a push.
for rule in asgd downpour; do
    more=(--sync asgd)
    [ $rule = asgd ] || more=(--set "train.sync={rule: downpour, n_push: 2, n_fetch: 4}")
    "$tandem" train "$mark" -n 3 --servers 2 --run-dir=still-$rule --set train.epochs=100000 \
        --set train.eval.every=1000000 "${more[@]}" "${slow[@]}" >out 2>&1 &
    launcher=$!
    soon past still-$rule 30 || fail "the run made no steps"
    pid=$(pid_of 4)
    kill -STOP "$pid"
    soon grep -q 'rank 4 has had step .* it is given to another worker' out ||
        fail "$rule: a stopped worker: its batch is not given out again"
    now=$(steps still-$rule)
    soon past still-$rule $((now + 30)) || fail "$rule: a stopped worker holds the others up"
    kill -CONT "$pid"
    soon grep -q 'rank 4 has caught up' out ||
        fail "$rule: a worker that stood still does not come back"
    kill -TERM "$(pid_of 0)"
    ends "$rule: a worker that stood still" 130
    none_left "a worker that stood still"
    python3 - still-$rule <<'PY' || fail "$rule: metrics.jsonl after a worker stood still"
import json, sys
steps = [e for e in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if e["kind"] == "step"]
assert [e["step"] for e in steps] == list(range(1, len(steps) + 1))
epochs = {}
for e in steps:
    epochs[e["epoch"]] = epochs.get(e["epoch"], 0) + e["samples"]
last = epochs.pop(max(epochs))
assert set(epochs.values()) == {max(epochs.values())}, epochs
PY
done
# One that stands still to the end: nobody waits for it, nor do those that ssp keeps together.
for rule in asgd ssp; do
    transport=$([ $rule = ssp ] && echo tcp || echo shm)
    "$tandem" train "$mark" -n 3 --servers 2 --sync $rule --run-dir=to-the-end-$rule \
        --set train.epochs=60 --set train.eval.every=1000000 --set parallel.transport=$transport \
        "${slow[@]}" >out 2>&1 &
    launcher=$!
    soon found 4 || fail "the run did not start"
    soon past to-the-end-$rule 3 || fail "the run made no steps"
    kill -STOP "$pid"
    ends "$rule: a worker that stands still at the end" 0
    has 'rank 4 has had step .* it is given to another worker'
    has 'ranks that have not ended with the servers are killed'
    past to-the-end-$rule 420 || fail "$rule: $(steps to-the-end-$rule) steps"
    none_left "a worker that stands still at the end"
done
# One that stands still when server 0 has its push, and server 1 has not: over TCP the messages to a
# server are two, one that announces a push, and the push. The others go on, and it is left out.
run 0 "$tandem" train "$mark" -n 3 --servers 2 --sync asgd --run-dir=between \
    --set train.eval.every=1000000 --set parallel.transport=tcp \
    --faults 'hang rank=4 at=step:3:send:3'
has 'rank 4 has told server 0 of step 3, and not server 1'
[ "$(steps between)" = 14 ] || fail "a worker between two servers: $(steps between) steps"
none_left "a worker between two servers"
# Of a worker that has nothing to do, while server 0 is about to end: the checkpoint is written.
"$tandem" train "$mark" -n 2 --servers 1 --sync asgd --run-dir=idle --set train.epochs=100000 \
    --set train.eval.every=1000000 >out 2>&1 &
launcher=$!
soon past idle 3 || fail "the run did not start"
leader=$(pid_of 0)
kill -STOP "$leader"
kill -9 "$(pid_of 2)"
sleep 0.2 # the other one's push is there by then, or not: the end is the same
kill -TERM "$leader"
kill -CONT "$leader"
ends "kill -9 of a worker at the end" 130
# Server 0 knows of the death from the worker's lane or, where the run has ended first, from a call.
has 'continues with 1 of 2 workers\|rank 2 on host .* died, after the last step'
[ "$(cat idle/checkpoints/latest)" = "$(printf 'step-%08d' "$(steps idle)")" ] ||
    fail "kill -9 of a worker at the end: the last checkpoint is $(cat idle/checkpoints/latest)"
none_left "the death of a worker at the end"
# Of a server: one line, and the run is resumed from its last checkpoint.
"$tandem" train "$mark" -n 2 --servers 2 --sync asgd --run-dir=server --set train.epochs=100000 \
    --set checkpoint.every=2 >out 2>&1 &
launcher=$!
soon test -e server/checkpoints/latest || fail "the run did not start"
kill -9 "$(pid_of 1)"
ends "kill -9 of a server" 1
has 'tandem train: .*rank 1'
none_left "the death of a server"
done=$(steps server)
run 0 "$tandem" train -q --resume=server -n 2 --servers 2 --set train.epochs=$((2 + done / 5))

# With copies of shards a server that is killed is replaced by another. In lockstep the weights are
# those of one rank, whoever dies.
copies() { # FAULTS
    rm -rf run
    run 0 "$tandem" train "$mark" -q -n 2 --servers 2 --sync sync --elastic --lease 10s \
        --set parallel.replicas=1 --set checkpoint.every=4 --run-dir run --faults "$1"
    [ "$(digest)" = "$want" ] || fail "$1: other weights"
    grep -q 'fault: ' out || fail "$1: never happened"
    every_step "$1" 14
    none_left "$1"
}
copies 'kill rank=0 at=step:5:comm:4'
copies 'kill rank=1 at=step:5:comm:2; kill rank=0 at=step:9; kill rank=2 at=step:11'
copies 'kill rank=0 at=step:6:comm:3; kill rank=1 at=step:6:comm:1'

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
bad 'mirrored has no parameter servers' -n 2 --strategy mirrored --servers 1 --sync asgd
bad 'parallel.strategy' -n 2 --strategy ring
bad 'elastic ranks need copies of the shards of 2 servers' -n 2 --servers 2 --sync asgd --elastic
bad 'parallel.replay: not with elastic ranks' -n 2 --servers 1 --sync asgd --elastic --replay asgd
bad 'a copy needs a second server' -n 2 --servers 1 --sync asgd --elastic \
    --set parallel.replicas=1
bad 'add --elastic' -n 2 --servers 2 --sync asgd --set parallel.replicas=1
bad 'parallel.replay: only with parallel.servers' -n 2 --replay asgd
bad 'replay with as many' -n 2 --servers 1 --sync asgd --replay asgd
bad '20 servers for a model of 8 params' -n 1 --servers 20 --sync asgd
mkdir many
echo '{"kind": "begin", "step": 1, "ranks": 6000}' >many/metrics.jsonl
bad 'at most 5120' --servers 1 --sync asgd --replay many
# A replay is of a whole run, as long as the job.
run 0 "$tandem" train "$mark" -q -n 1 --servers 1 --sync asgd --run-dir twice --set train.epochs=1
run 0 "$tandem" train -q --resume=twice -n 1 --set train.epochs=2
bad 'is of a run that was resumed' -n 1 --servers 1 --sync asgd --replay twice
run 1 "$tandem" train --replay asgd-again -q --set train.epochs=3
has 'ends at step 14, and the job has 21'
# Sums that are never pushed.
run 0 "$tandem" train "$mark" -n 2 --servers 1 --sync downpour --set train.sync.n_push=20
has 'train.sync.n_push: 20 batches between two pushes, of 14 that 2 workers share'
none_left "the runs"
