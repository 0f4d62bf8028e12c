#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# Embedding tables on parameter servers that come and go: with the rule sync a run in which a server
# is killed has the losses of an ordinary embedding, to the last digit; rows that are lost with all
# their servers are those of the checkpoint that the run goes back to.
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
sed 's/sparse: true/on: servers, min_count: 3, memory_mb: 0.02/' dense.yaml >rare.yaml

losses() { grep -o '"kind": "step".*"loss": [^,]*' "$1/metrics.jsonl" |
    grep -o '"step": [0-9]*\|"loss": [^,]*' >"$1.losses"; }
# same WANT NAME ARGUMENTS...: a run of them has the losses of WANT
same() {
    local want=$1 name=$2; shift 2
    run 0 "$tandem" train "$@" --run-dir "$name" --threads 1 --sync sync
    losses "$name"
    cmp -s "$want.losses" "$name.losses" || fail "$name: a wrong result: other losses"
}
elastic=(--elastic --set parallel.replicas=1)
run 0 "$tandem" train dense.yaml --run-dir dense --threads 1
losses dense
[ "$(wc -l <dense.losses)" = 64 ] || fail "no losses: $(head -n 3 dense.losses)"
run 0 "$tandem" train rare.yaml -n 2 --servers 1 --sync sync --run-dir rare --threads 1
losses rare

ops=(3)
[ -z "${TD_TEST_FULL:-}" ] || ops=(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
for servers in 2 3; do
    for rank in $(seq 0 $((servers - 1))); do
        for op in "${ops[@]}"; do
            same dense "kill-$servers-$rank-$op" tables.yaml -n 2 --servers $servers \
                "${elastic[@]}" --faults "kill rank=$rank at=step:18:comm:$op"
            ! grep 'goes back' out || fail "server $rank of $servers: rows were lost"
        done
    done
done
# Again and again, where ids are counted before they have rows, and rows are in a file.
kills='kill rank=0 at=step:5:comm:6; kill rank=1 at=step:12:comm:2; kill rank=0 at=step:25:comm:9'
same rare often rare.yaml -n 2 --servers 2 "${elastic[@]}" --faults "$kills"
run 0 "$tandem" eval often --threads 1
# One server alone, and two that are all that a row has.
same dense alone tables.yaml -n 2 --servers 1 --elastic --set checkpoint.every=5 \
    --faults 'kill rank=0 at=step:18:comm:3'
has 'goes back to step 1[0-7]'
for op in 2 8 11 ${TD_TEST_FULL:+1 3 4 5 6 7 9 10 12 13 14}; do
    same dense both-$op tables.yaml -n 2 --servers 2 "${elastic[@]}" --set checkpoint.every=5 \
        --faults "kill rank=0 at=step:18:comm:3; kill rank=0 at=generation:2:comm:$op"
    has 'goes back to step 1[0-7]'
done
