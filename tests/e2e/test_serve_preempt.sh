#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A run that another job preempts stops at a checkpoint, and its second attempt goes on at that step
# to the digest of a run that nobody disturbed.
. "$(dirname "$0")/lib.sh"
. "$source/tests/e2e/serve.sh"
command -v curl >/dev/null || { echo "skipped: curl is not installed"; exit 77; }
config=$dir/service.yaml
echo 'capacity: {slots: 1}
schedule: {preempt_s: 0}' >service.yaml
printf '%s\n' 'name: long' 'preemptible: true' 'job: |' \
    '  model: [flatten, {linear: 128}, relu, linear]' \
    '  data: {source: digits, count: 20000}' '  train: {batch: 16, steps: 5000}' \
    '  log: {every: 10}' \
    >long.yaml
sed -n '/^  /s/^  //p' long.yaml >job-alone.yaml
"$tandem" train job-alone.yaml -q -j1 --run-dir alone >out 2>&1 || fail "alone"
mv out alone.out

serve first
submit --spec long.yaml
long=$job
soon has_steps "$long" || fail "no steps"
submit --priority 5 --name urgent -- true # $mark
await "$job" succeeded
await "$long" succeeded
[ "$(number attempt "$long")" = 2 ] || fail "it was not preempted"
history() { curl -sS --max-time 60 "$server/v1/jobs/$long/history" >out; }
history
grep -q 'preempted by a job of higher priority' out || fail "its history says no word of it"
[ -n "$(digest "$long" 2)" ] || fail "the second attempt says no digest"
alone=$(grep -o 'digest sha256:[0-9a-f]*' alone.out)
[ "$(digest "$long" 2)" = "$alone" ] || fail "another digest"
# It begins where the first one's checkpoint is, not before.
metrics "$long" >out
second=$(grep '"kind": "begin"' out | sed -n '2s/.*"step": \([0-9]*\),.*/\1/p')
[ "${second:-1}" -gt 1 ] || fail "the second attempt began at step ${second:-none}"
[ "$(grep -c '"end": "done"' out)" = 1 ] || fail "not one end"
grep "\"kind\": \"checkpoint\", \"step\": $((second - 1))," out >/dev/null ||
    fail "step $((second - 1)) has no checkpoint"
end_service
