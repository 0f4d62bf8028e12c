#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Ranks that get too little memory: whatever is the first that cannot be had, the job ends with a
# status and a line that says so; no rank dies of a signal, nothing is left, nothing hangs.
. "$(dirname "$0")/lib.sh"

if grep -qs '^TD_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
    echo "skipped: sanitizers need more address space than there is memory"
    exit 77
fi
cat >"$mark" <<'JOB'
name: low
model: [flatten, {linear: 256, act: relu}, linear]
data: {source: digits, count: 500}
train: {batch: 64, micro_batches: 8, steps: 4, optimizer: {name: adam, lr: 0.001}}
checkpoint: {every: end}
log: {report: false, tensorboard: false}
JOB
# with MB ARGUMENTS...: `tandem train` of two ranks that have so much; its status
with() {
    local mb=$1; shift
    rm -rf run
    (ulimit -v $((mb * 1024)) && limited "$tandem" train "$mark" -q -n 2 --run-dir run "$@") \
        >out 2>&1 </dev/null
}
while read -r step arguments; do
    mb=52 enough=0
    while [ "$enough" -lt 2 ]; do
        # shellcheck disable=SC2086 # several words
        with "$mb" $arguments
        status=$?
        [ "$status" != 0 ] || enough=$((enough + 1))
        [ "$status" -le 2 ] || [ "$status" = 127 ] || fail "$mb MB, $arguments: status $status"
        [ -s out ] || fail "$mb MB, $arguments: not a word"
        ! grep -q 'by signal' out || fail "$mb MB, $arguments: a rank was killed"
        none_left "$mb MB, $arguments"
        [ "$mb" -lt 1000 ] || fail "$arguments: does not run with $mb MB"
        mb=$((mb + step))
    done
done <<'CASES'
4 --set parallel.zero=0
4 --set parallel.zero=2
9 --elastic --restarts 1
CASES
