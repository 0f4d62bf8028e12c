#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Threads that update shared params: the jobs of hogwild and cyclades train, cyclades has the same
# digest with any number of threads and after a stop, and what cannot be combined is refused in one
# line before anything is made.
. "$(dirname "$0")/lib.sh"

linear=$source/examples/sparse-linear.yaml factors=$source/examples/matrix-factorization.yaml
few="--set data.count=4000 --set log.report=false"

run 0 "$tandem" train "$linear" --run-dir linear --threads 2 $few --set train.epochs=2
grep -q 'test .*auc' out || fail "no AUC: $(cat out)"
run 0 "$tandem" train "$linear" --run-dir add --threads 2 $few --set train.epochs=1 \
    --set train.sync.update=add
for n in 1 2 3; do
    run 0 "$tandem" train "$factors" --run-dir "factors$n" --threads "$n" $few --set train.epochs=2
    grep -o 'digest sha256:[0-9a-f]*' out >"digest$n" || fail "no digest: $(cat out)"
    cmp -s digest1 "digest$n" || fail "$n threads: another digest"
done
grep -q '"sync": {"components": [0-9.]*, "largest": ' factors2/metrics.jsonl || fail "no components"
run 0 "$tandem" train "$factors" --run-dir half --threads 2 $few --set train.epochs=1
run 0 "$tandem" train --resume=half --threads 2 --set train.epochs=2
grep -o 'digest sha256:[0-9a-f]*' out >digest4
cmp -s digest1 digest4 || fail "resumed: another digest"

# wrong PATTERN ARGUMENTS...: status 2, one line, nothing was made
wrong() {
    local pattern=$1; shift
    run 2 "$tandem" train "$@" --run-dir never
    [ "$(wc -l <out)" = 1 ] && grep -q -- "$pattern" out || fail "train $*: $(cat out)"
    [ ! -e never ] || fail "train $* made a folder"
}
wrong 'trains with threads of one process: start one rank' "$linear" -n 2
wrong 'updates by plain SGD: set it to sgd, not adam' "$linear" --set train.optimizer=adam
wrong 'train.optimizer.momentum: the sync rule hogwild' "$linear" \
    --set train.optimizer.momentum=0.9
wrong 'train.clip: the sync rule cyclades' "$factors" --set train.clip=1
wrong 'train.verify: not with the sync rule hogwild' "$linear" --set train.verify=0.5
wrong 'hogwild needs memory that the host reads' "$linear" --set train.backend=far
wrong 'cannot be combined with parallel.zero' "$linear" --set parallel.zero=1
wrong "has no option 'update'\|update" "$factors" --set train.sync.update=add
wrong 'the sync rule cyclades needs a model of embeddings' "$source/examples/digits.yaml" \
    --sync cyclades --set train.optimizer=sgd --set train.clip=0
