#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# parallel.timeout: ranks that wait for one that does not come give up after that time, and say for
# whom they waited.
. "$(dirname "$0")/lib.sh"
cat >"$mark" <<'JOB'
name: waits
model: [flatten, {linear: 16, act: relu}, linear]
data: {source: digits, count: 200}
train: {batch: 32, steps: 1000000, eval: {every: never}}
parallel: {timeout: 2}
checkpoint: {every: end}
log: {tensorboard: false, report: false}
JOB
"$tandem" train "$mark" -q -n 2 -j 1 --run-dir run >out 2>&1 &
pid=$!
soon step 5 || fail "no step"
rank() { # the process of rank N
    "$tandem" status run --json | python3 -c "import json, sys
for p in json.load(sys.stdin)['job']['hosts'][0]['says']['processes']:
    if p['rank'] == $1: print(p['pid'])"
}
kill -STOP "$(rank 1)" || fail "there is no rank 1"
wait "$pid"
[ $? = 1 ] || fail "status $?"
has 'rank 0 timed out waiting for rank 1 (process [0-9]*, stopped)'
run 2 "$tandem" check "$mark" -q --set parallel.timeout=0
has 'parallel.timeout'
echo "test_timeout: ok"
