#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A model that is too large for one worker: a GPT trains on four stages with each rank in a memory
# cgroup of 40 % of what one rank takes for the whole model, and ends with its digest; one rank in
# such a group cannot. Prints the peak of every stage.
. "$(dirname "$0")/lib.sh"

# Where groups are made: cgroup v1, or v2 with its controller of memory.
if [ -d /sys/fs/cgroup/memory ]; then
    root=/sys/fs/cgroup/memory limit=memory.limit_in_bytes most=memory.max_usage_in_bytes
else
    root=/sys/fs/cgroup limit=memory.max most=memory.peak
fi
groups=$root/tandem-$$
group() { # NAME [BYTES]
    mkdir -p "$groups/$1" || return 1
    [ -e "$groups/$1/$most" ] || return 1
    [ $# = 1 ] || echo "$2" >"$groups/$1/$limit"
}
also_clean() {
    local g
    for g in "$groups"/* "$groups"; do
        [ ! -d "$g" ] || soon rmdir "$g" 2>/dev/null
    done
}
peak_of() { cat "$groups/$1/$most"; }
mkdir -p "$groups" 2>/dev/null
[ "$root" != /sys/fs/cgroup ] || echo +memory >"$groups/cgroup.subtree_control" 2>/dev/null
if ! group whole 2>/dev/null; then
    echo "skipped: no memory cgroup can be made here; e2e_test_pipeline measures the peak instead"
    exit 77
fi

for i in $(seq 400); do echo "line $i of a text, and $((i * 7 % 13)) more"; done >text.txt
cat >"$mark" <<'JOB'
name: large
model: {name: gpt2, layers: 8, heads: 4, width: 320}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.05}}
train: {batch: 8, steps: 2, micro_batches: 8, clip: 1, optimizer: adamw, eval: {every: 2}}
parallel: {threads: 1}
log: {report: false}
JOB
# in GROUP COMMAND...: a process that counts there from its beginning on
cat >in <<'SH'
#!/bin/sh
echo $$ >"$1/cgroup.procs" || exit 9
shift
exec "$@"
SH
chmod +x in

run 0 ./in "$groups/whole" "$tandem" train "$mark" -q
want=$(digest)
whole=$(peak_of whole)
[ -n "$want" ] && [ "$whole" -gt 0 ] || fail "no digest, or no peak"
small=$((whole * 40 / 100))
for rank in 0 1 2 3; do group "stage$rank" "$small" || fail "no group for rank $rank"; done
cat >stage <<SH
#!/bin/sh
exec ./in "$groups/stage\$TANDEM_RANK" "$tandem" train "$mark" -q --parallel pipeline=4
SH
chmod +x stage
run 0 "$tandem" launch -n 4 -- ./stage
same "four stages in groups of 40 %"
for rank in 0 1 2 3; do
    echo "stage $rank: peak $(peak_of "stage$rank") bytes," \
        "$((100 * $(peak_of "stage$rank") / whole)) % of one rank's $whole"
done
group alone "$small" || fail "no group for one rank"
! ./in "$groups/alone" "$tandem" train "$mark" -q >out 2>&1 || fail "one rank fits in 40 %, too"
echo "test_pipeline_memory: passed"
