#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Parameter servers that join and leave while the run goes on: shards, and rows of tables, move to
# the new servers, and the losses of every step are those of one rank. A server that has just come
# is killed, and nothing is lost.
. "$(dirname "$0")/lib.sh"

cat >dense.yaml <<'END'
name: rows
model:
  input: ids
  layers:
    - {embedding: 4, name: emb, sparse: true, std: 0.1}
    - flatten
    - {linear: 16, act: relu}
    - linear
data: {source: clicks, vocab: 5200, count: 1024}
train: {batch: 64, micro_batches: 1, epochs: 60, eval: {every: never},
    optimizer: {name: adagrad, lr: 0.05}}
parallel: {threads: 1}
checkpoint: {every: end}
log: {report: false, tensorboard: false}
END
sed 's/sparse: true/on: servers/' dense.yaml >tables.yaml
losses() { grep -o '"kind": "step".*"loss": [^,]*' "$1/metrics.jsonl" |
    grep -o '"step": [0-9]*\|"loss": [^,]*' >"$1.losses"; }
run 0 "$tandem" train dense.yaml --run-dir dense
losses dense

steps() { cat moved/metrics.jsonl 2>/dev/null | grep -c '"kind": *"step"'; }
past() { [ "$(steps)" -ge "$1" ]; }
TANDEM_LOG=info "$tandem" train tables.yaml -n 2:4 --servers 2 --sync sync --run-dir moved \
    --set parallel.replicas=1 >out 2>&1 \
    --faults 'slow rank=2 for=20ms at=step:1; slow rank=3 for=20ms at=step:1' &
launcher=$!
goes_on() { # WHAT: steps are made, a while after it
    local now; now=$(steps)
    soon past $((now + 20)) || fail "$1: the run does not go on"
}
scale() { "$tandem" scale moved "$@" >scaled 2>&1 || fail "scale $*: $(cat scaled)"; }
soon past 10 || fail "the run made no steps"
soon test -e moved/control || fail "it takes no orders"
scale 6 --servers 3
soon grep -q '3 servers in the place of 2 from step' out || fail "no third server"
goes_on "a third server"
pid=$("$tandem" status moved | sed -n 's/^ *1 *[^ ]* *\([0-9]*\) .*/\1/p')
[ -n "$pid" ] && kill -9 "$pid" || fail "there is no rank 1: $("$tandem" status moved)"
goes_on "a server that is killed"
scale 5 --servers 1
soon grep -q '1 servers in the place of 3 from step' out || fail "two servers stay"
goes_on "one server"
scale 5 --servers 2 # with as many ranks
soon grep -q '2 servers in the place of 1 from step' out || fail "a worker does not become a server"
goes_on "a second server"
# More than the model has params: the run says so, and the order is as it was before.
scale 6 --servers 5
soon grep -q 'goes on with 2 servers: .*5 servers for a model of 4 params' out ||
    fail "five servers of four params"
order() { cat moved/checkpoints/servers 2>/dev/null; }
soon [ "$(order)" = 2 ] || fail "the order for five servers stays"
goes_on "an order that cannot be"
refused() { # TEXT RUN ARGUMENTS...: in one line, and nothing is ordered
    local was; was=$(cat "$2/checkpoints/servers" 2>/dev/null)
    "$tandem" scale "${@:2}" >scaled 2>&1
    [ $? = 2 ] || fail "scale ${*:2}: not status 2"
    [ "$(wc -l <scaled)" = 1 ] && grep -q -- "$1" scaled || fail "scale ${*:2}: $(cat scaled)"
    [ "$(cat "$2/checkpoints/servers" 2>/dev/null)" = "$was" ] || fail "scale ${*:2}: an order"
}
refused 'this job can have' moved 99 --servers 3
ended() { ! kill -0 $launcher 2>/dev/null; }
soon ended || fail "the run does not end"
wait $launcher || fail "status $?"
! grep 'goes back' out || fail "steps are repeated from a checkpoint"
losses moved
cmp -s dense.losses moved.losses || fail "a wrong result: other losses"

# With an asynchronous rule: a server joins and leaves, each batch of each epoch is trained once.
TANDEM_LOG=info "$tandem" train tables.yaml -n 2:4 --servers 2 --sync asgd --run-dir apart \
    --set parallel.replicas=1 >out 2>&1 \
    --faults 'slow rank=2 for=20ms at=step:1; slow rank=3 for=20ms at=step:1;
              slow rank=4 for=20ms at=step:1; slow rank=5 for=20ms at=step:1' &
launcher=$!
past() { [ "$(cat apart/metrics.jsonl 2>/dev/null | grep -c '"kind": *"step"')" -ge "$1" ]; }
soon past 10 || fail "asgd: the run made no steps"
"$tandem" scale apart 5 --servers 3 >scaled 2>&1 || fail "asgd: $(cat scaled)"
soon grep -q '3 servers in the place of 2 from step' out || fail "asgd: no third server"
"$tandem" scale apart 4 --servers 2 >scaled 2>&1 || fail "asgd: $(cat scaled)"
soon grep -q '2 servers in the place of 3 from step' out || fail "asgd: the third server stays"
soon ended || fail "asgd: the run does not end"
wait $launcher || fail "asgd: status $?"
! grep 'goes back' out || fail "asgd: steps are repeated from a checkpoint"
want=$(grep -c '"kind": "step"' dense/metrics.jsonl)
[ "$(grep -o '"kind": "step".*' apart/metrics.jsonl | grep -o '"step": [0-9]*' | sort -u | wc -l)" \
    = $want ] || fail "asgd: not each step once"

refused 'leave no rank to train' moved 3 --servers 3
refused 'dense is a run without parameter servers' dense 4 --servers 2
run 0 "$tandem" train tables.yaml --sync sync --servers 1 --run-dir alone --set train.epochs=1
refused 'need copies of their shards, and alone was begun without' alone 4 --servers 2

# A run that is resumed has the servers that were ordered last; others, if the job says others.
echo 3 >moved/checkpoints/servers
run 0 "$tandem" train --resume=moved -n 3:4 --set train.epochs=61
has '3 servers in the place of 2 from step .* the last order of this run'
run 0 "$tandem" train --resume=moved -n 3:4 --set train.epochs=62 --servers 1 \
    --set parallel.replicas=0
! grep 'in the place of' out || fail "an order counts more than --servers"
[ ! -e moved/checkpoints/servers ] || fail "the order stays"
