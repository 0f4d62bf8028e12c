#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Embedding tables on parameter servers. With the rule sync, on any number of workers and servers, a
# run has the losses of an ordinary embedding, to the last digit: in shared memory, over TCP, with
# most rows in a file, and resumed on another number of servers. The jobs of clicks train; what
# cannot be is refused in one line.
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
metrics: [auc]
data: {source: clicks, vocab: 5200, count: 1024}
train:
  batch: 64
  micro_batches: 4
  epochs: 2
  optimizer: {name: adagrad, lr: 0.05}
log: {report: false, tensorboard: false}
END
sed 's/sparse: true/on: servers/' dense.yaml >tables.yaml
sed 's/sparse: true/on: servers, memory_mb: 0.02/' dense.yaml >file.yaml

losses() { grep -o '"kind": "step".*"loss": [^,]*\|"name": "auc.*' "$1/metrics.jsonl" |
    grep -o '"step": [0-9]*\|"loss": [^,]*' >"$1.losses"; }
# same NAME ARGUMENTS...: a run of them has the losses of the ordinary embedding
same() {
    local name=$1; shift
    run 0 "$tandem" train "$@" --run-dir "$name" --threads 1
    losses "$name"
    cmp -s dense.losses "$name.losses" || fail "$name: a wrong result: other losses"
}
run 0 "$tandem" train dense.yaml --run-dir dense --threads 1
losses dense
[ "$(wc -l <dense.losses)" = 64 ] || fail "no losses: $(head -n 3 dense.losses)"
same one tables.yaml -n 1 --servers 1 --sync sync
same four tables.yaml -n 2 --servers 2 --sync sync
# A checkpoint has zeros in their place, also one that a validation comes before; so all digests are
# those of the other weights.
grep -q "\"digest\": \"$(digest | cut -d : -f 2)\"" four/checkpoints/step-00000032/state.json ||
    fail "the digest of the last checkpoint is not that of the run"
same tcp tables.yaml -n 2 --servers 2 --sync sync --set parallel.transport=tcp
same three tables.yaml -n 3 --servers 1 --sync sync --set train.micro_batches=4
same file file.yaml -n 1 --servers 2 --sync sync
same asgd tables.yaml -n 1 --servers 1 --sync asgd

# Ids that are rare have no row yet: whose pull came first does not matter.
sed 's/on: servers/on: servers, min_count: 3/' tables.yaml >rare.yaml
run 0 "$tandem" train rare.yaml -n 1 --servers 1 --sync sync --run-dir rare --threads 1
losses rare
! cmp -s dense.losses rare.losses || fail "min_count changes nothing"
for name in "1 2" "2 1" "2 2" "3 1"; do
    read -r workers servers <<<"$name"
    run 0 "$tandem" train rare.yaml -n "$workers" --servers "$servers" --sync sync \
        --run-dir "rare$workers$servers" --threads 1
    losses "rare$workers$servers"
    cmp -s rare.losses "rare$workers$servers.losses" ||
        fail "min_count: a wrong result: other losses of $workers workers, $servers servers"
done

run 0 "$tandem" train tables.yaml -n 2 --servers 2 --sync sync --run-dir half --threads 1 \
    --set train.epochs=1
run 0 "$tandem" train --resume=half -n 1 --servers 3 --threads 1 --set train.epochs=2
losses half
cmp -s dense.losses half.losses || fail "resumed: a wrong result: other losses"
ls half/checkpoints/tables/emb.weight.2-of-3.32.all >/dev/null || fail "no file of the third server"
printf x | dd of=half/checkpoints/tables/emb.weight.1-of-3.32.all bs=1 seek=60 conv=notrunc \
    2>/dev/null
run 1 "$tandem" train --resume=half -n 1 --servers 3 --threads 1 --set train.epochs=3
has 'emb.weight.1-of-3.32.all: damaged'

# Files that no checkpoint needs are removed, and what is left is enough to go on.
never=(--threads 1 --set train.eval.every=never)
run 0 "$tandem" train dense.yaml --run-dir long --set train.epochs=5 "${never[@]}"
run 0 "$tandem" train tables.yaml -n 1 --servers 2 --sync sync --run-dir old "${never[@]}" \
    --set train.epochs=4 --set checkpoint.every=1 --set checkpoint.keep=3
steps=$(find old/checkpoints/tables -name '*.1-of-2.*' -printf '%f\n' | cut -d . -f 4 | sort -n)
[ "$(echo $steps)" = "$(seq -s ' ' 33 64)" ] || fail "files of the second server: "$steps
run 0 "$tandem" train --resume=old -n 1 --servers 1 "${never[@]}" --set train.epochs=5
losses long
losses old
cmp -s long.losses old.losses || fail "from few files: a wrong result: other losses"

# An old file that cannot be removed is told of once, and in nobody's way.
mkdir old/checkpoints/tables/emb.weight.{0,1}-of-9.1.all
run 0 "$tandem" train --resume=old -n 1 --servers 1 "${never[@]}" --set train.epochs=6
[ "$(grep -c 'an old file that cannot be removed stays' out)" = 1 ] || fail "an old file"
ls -d old/checkpoints/tables/emb.weight.{0,1}-of-9.1.all >out || fail "folders that are gone"

# A run that goes on from an earlier step, with other checkpoints: what the first one wrote after
# that step is none of its business, also when it is resumed itself.
run 0 "$tandem" train tables.yaml -n 1 --servers 1 --sync sync --run-dir back --threads 1 \
    --set checkpoint.every=4 --set checkpoint.keep=100
for step in 12 16 20 24 28 32; do
    rm -r "back/checkpoints/step-000000$step" || fail "no checkpoint of step $step"
    printf x | dd of=back/checkpoints/tables/emb.weight.0-of-1.$step.delta bs=1 seek=60 \
        conv=notrunc 2>/dev/null
done
for steps in 28 32; do
    run 0 "$tandem" train --resume=back -n 1 --servers 1 --threads 1 --set checkpoint.every=7 \
        --set train.steps=$steps
done
losses back
cmp -s dense.losses back.losses || fail "from an earlier step: a wrong result: other losses"

# Files of tables are sent with the checkpoints that need them, each once; what no checkpoint needs
# goes; and the run is continued from there, on another number of servers.
up=(--set checkpoint.upload="file://$dir/store" --threads 1 --set checkpoint.every=1)
run 0 "$tandem" train tables.yaml -n 2 --servers 2 --sync sync --run-dir sent "${up[@]}" \
    --set train.epochs=1 --set checkpoint.keep=2
run 0 "$tandem" train "--resume=file://$dir/store" --run-dir fetched -n 1 --servers 3 --threads 1 \
    --set train.epochs=2
losses fetched
cmp -s dense.losses fetched.losses || fail "fetched: a wrong result: other losses"
run 0 "$tandem" eval fetched --threads 1
run 0 "$tandem" train tables.yaml -n 1 --servers 1 --sync sync --run-dir pruned \
    --set checkpoint.keep=2 --set checkpoint.upload="file://$dir/few" --threads 1 \
    --set checkpoint.every=1 "${never[@]}" --set train.epochs=4
[ "$(find few -name tables.json | wc -l)" -le 3 ] || fail "tables.json of $(ls few)"
[ "$(find few/tables -type f | wc -l)" -le 20 ] || fail "files of tables stay: $(ls few/tables)"
for file in store/tables/*16.delta-*; do
    printf x | dd of="$file" bs=1 seek=60 conv=notrunc 2>/dev/null
done
run 2 "$tandem" train "--resume=file://$dir/store" --run-dir bad -n 1 --servers 3 --threads 1
has '16.delta.*: its sha256 is'

# Rows of the next batch are pulled while one computes.
sed 's/sparse: true/on: servers, ahead: true/' dense.yaml >ahead.yaml
TANDEM_LOG=info run 0 "$tandem" train ahead.yaml -n 1 --servers 2 --sync asgd --run-dir ahead \
    --threads 1
has '9[0-9]\.[0-9] % of [0-9]* rows were pulled ahead'
same ahead-sync ahead.yaml -n 2 --servers 1 --sync sync

# kill -9 of a worker: the others go on to the end. Of a server: one line, and the run is resumed.
mark=tables-$$.yaml
cp tables.yaml "$mark"
pid_of() { # RANK
    pgrep -f "train .*-- $mark" | while read -r p; do
        grep -qz "^TANDEM_RANK=$1\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done
}
found() { pid=$(pid_of "$1"); [ -n "$pid" ]; }
saved() { grep -qs '"kind": *"checkpoint"' "$1/metrics.jsonl"; }
for rank in 3 1; do
    "$tandem" train "$mark" -n 3 --servers 2 --sync asgd --run-dir=kill$rank --threads 1 \
        --set train.epochs=60 --set train.eval.every=never --set checkpoint.every=20 >out 2>&1 &
    launcher=$!
    soon found $rank || fail "the run did not start"
    soon saved kill$rank || fail "no checkpoint was made"
    kill -9 "$pid"
    wait $launcher; got=$?
    if [ $rank = 3 ]; then
        [ $got = 0 ] || fail "kill -9 of a worker: $got"
        has 'continues with 2 of 3 workers'
    else
        [ $got = 1 ] || fail "kill -9 of a server: $got"
        run 0 "$tandem" train --resume=kill1 -n 2 --servers 1 --threads 1 --set train.epochs=61
        has 'finished at step'
    fi
done

for job in wide-and-deep deepfm; do
    run 0 "$tandem" train "$source/examples/$job.yaml" -n 2 --servers 2 --threads 1 \
        --run-dir "$job" --set data.count=2000 --set train.epochs=1
    has 'test auc'
done

# wrong STATUS PATTERN ARGUMENTS...: nothing was made
wrong() {
    local pattern=$1; shift
    run 2 "$tandem" train "$@" --run-dir never
    has "$pattern"
    [ ! -e never ] || fail "train $* made a folder"
}
wrong 'on: servers needs parameter servers' tables.yaml
wrong 'rows of a table cannot be updated: momentum' tables.yaml -n 1 --servers 1 --sync asgd \
    --set train.optimizer=sgd --set train.optimizer.momentum=0.9
sed 's/- flatten/- {flatten: , as: a}\n    - {embedding: 1, name: wide, from: ids}\n/' tables.yaml |
    sed 's/^    - {embedding: 1,.*/&\n    - {flatten: , as: b}\n    - concat: [a, b]/' >both.yaml
wrong 'emb.weight: its ids, the data field ids, are read by wide.* too' both.yaml -n 1 --servers 1 \
    --sync sync
wrong 'set train.batch, not train.batch_per_rank' tables.yaml -n 1 --servers 1 --sync sync \
    --set train.batch_per_rank=8
[ "$(wc -l <out)" = 1 ] || fail "more than a line"
wrong 'one of ranks, servers' tables.yaml --set model.layers.0.on=moon
for form in onnx py; do
    run 2 "$tandem" export half -o "never.$form"
    has 'emb.weight is on servers'
    [ ! -e never.safetensors ] && [ ! -e "never.$form" ] || fail "export made a file"
done
run 0 "$tandem" export half -o half.safetensors
has 'rows of tables on servers are in .*tables alone'

# eval and predict read the rows of the checkpoint from its files: those of an ordinary embedding.
metrics() { grep -o '"metrics": {[^}]*}' out; }
for at in step-00000016 step-00000032; do
    run 0 "$tandem" eval dense --checkpoint $at --json
    want=$(metrics)
    run 0 "$tandem" eval four --checkpoint $at --json
    [ -n "$want" ] && [ "$(metrics)" = "$want" ] || fail "eval of $at: a wrong result, not $want"
done
run 0 "$tandem" predict dense --part test -o dense.npy
run 0 "$tandem" predict four --part test -o four.npy
cmp -s dense.npy four.npy || fail "predict: a wrong result: other outputs"
rm four/checkpoints/tables/emb.weight.1-of-2.32.delta
run 2 "$tandem" eval four
has 'files of 1 of 2 servers for table emb.weight at step 32'
[ "$(wc -l <out)" = 1 ] || fail "eval without a file: more than a line"

# Rows are waited for in the midst of a batch; what a worker computes after that has a name.
sed 's/{linear: 16, act: relu}/{linear: 2048, name: wide}/; s/batch: 64/batch: 1024/' tables.yaml |
    sed 's/micro_batches: 4/micro_batches: 1/; s/epochs: 2/epochs: 200/' >"$mark"
"$tandem" train "$mark" -q -n 1 --servers 1 --sync sync --run-dir named >out 2>&1 &
names() { "$tandem" status named 2>/dev/null | grep -q 'compute: the step, wi'; }
soon names || fail "no node is named: $("$tandem" status named)"
kill -INT $!
wait $!
[ $? = 130 ] || fail "interrupted: not status 130"
