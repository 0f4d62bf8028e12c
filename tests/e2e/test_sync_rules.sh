#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Test labels: full
# Every sync rule that is used only by its name trains digits on four ranks with its defaults, ends
# with the same weights on all of them and is resumed on two; in the longer form it reaches 97.5 %.
. "$(dirname "$0")/lib.sh"

job=$source/examples/digits.yaml
# Those that a key of `parallel` or `plugin` asks for, those of one process, and the exact ones,
# are the business of other tests.
rules=
for rule in $("$tandem" help job sync | sed -n 's/^  \([a-z-]*\): .*/\1/p'); do
    case $rule in hogwild | cyclades) continue ;; esac
    "$tandem" check "$job" --quiet --sync "$rule" 2>err ||
        grep -q -e 'needs parallel\.' -e 'needs plugin\.' err || fail "$rule: $(cat err)"
    case $rule in exact-*) continue ;; esac
    [ -s err ] || rules="$rules $rule"
done
[ "$(wc -w <<<"$rules")" -ge 6 ] || fail "only these rules: $rules"
for rule in $rules; do
    if [ -n "${TD_TEST_FULL:-}" ]; then
        run 0 "$tandem" train "$job" -n 4 --sync "$rule" --run-dir "$rule"
        accuracy=$(grep -o 'test accuracy [0-9.]*' out | grep -o '[0-9.]*$')
        awk "BEGIN { exit !($accuracy >= 97.5) }" || fail "$rule: test accuracy $accuracy %"
        continue
    fi
    run 0 "$tandem" train "$job" -n 4 --sync "$rule" --run-dir "$rule" --set data.count=320 \
        --set train.epochs=1 --set train.schedule=constant --set log.report=false --threads 1
    grep -q 'test accuracy' out || fail "$rule: no accuracy"
    run 0 "$tandem" train --resume="$rule" -n 2 --set train.epochs=2
    has 'step 10'
done

run 0 "$tandem" train "$job" -n 2 --sync admm --run-dir own --set data.count=320 --threads 1 \
    --set data.partition=weighted --set data.weights='[1, 3]' --set train.sync.tau=2
grep -q '"sync": {"primal": [0-9.e-]*, "dual": ' own/metrics.jsonl || fail "no residuals"
run 2 "$tandem" train "$job" -n 4 --sync ma --run-dir never --set train.verify=0.5
has 'train.verify: not with the sync rule ma'
run 2 "$tandem" train "$job" -n 4 --sync ma --run-dir never --set parallel.zero=1
has 'the sync rule ma cannot be combined with parallel.zero'
run 2 "$tandem" train "$job" -n 4 --run-dir never --set data.partition=even
has 'data.partition: not with the sync rule exact-'
run 2 "$tandem" train "$job" -n 4 --sync ma --run-dir never --set data.partition=weighted
has 'data.partition: weighted needs data.weights'
[ ! -e never ] || fail "a folder was made"
