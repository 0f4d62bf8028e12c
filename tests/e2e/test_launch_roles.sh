#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Roles of foreign programs: TensorFlow's chief, ps and workers, torchrun's role; parameter servers
# are ended when the others have done their work; what a program that is started again finds.
. "$(dirname "$0")/lib.sh"
# go EXPECTED_STATUS ARGUMENTS...: tandem launch
go() { run "$1" "$tandem" launch "${@:2}"; }

# TF_CONFIG names every rank by its role, the evaluator outside the cluster.
go 0 -n 6 --roles chief:1,ps:2,evaluator -- sh -c '
    env >"env-$RANK.new" && mv "env-$RANK.new" "env-$RANK"
    until [ -e env-0 ] && [ -e env-1 ] && [ -e env-2 ] && [ -e env-3 ] && [ -e env-4 ] &&
        [ -e env-5 ]; do sleep 0.02; done'
grep -ho 'TF_CONFIG=.*' env-? | sed 's/TF_CONFIG=//' | python3 -c '
import json, sys
tasks = [json.loads(line) for line in sys.stdin]
clusters = [t["cluster"] for t in tasks]
assert all(c == clusters[0] for c in clusters), clusters
sizes = {role: len(where) for role, where in clusters[0].items()}
assert sizes == {"chief": 1, "ps": 2, "worker": 2}, sizes
where = [w for role in clusters[0].values() for w in role]
assert len(set(where)) == 5, where
of = sorted((t["task"]["type"], t["task"]["index"]) for t in tasks)
assert of[:3] == [("chief", 0), ("evaluator", 0), ("ps", 0)], of
assert of[3:] == [("ps", 1), ("worker", 0), ("worker", 1)], of
' || fail "TF_CONFIG"
for v in 0:ROLE_NAME=chief 2:ROLE_NAME=ps 2:ROLE_RANK=1 2:ROLE_WORLD_SIZE=2 5:ROLE_NAME=worker \
    5:ROLE_RANK=1 5:GROUP_WORLD_SIZE=1; do
    grep -qxF "${v#*:}" "env-${v%%:*}" || fail "rank ${v%%:*} lacks ${v#*:}"
done

# Parameter servers wait for ever; the job is done when chief and workers are.
serve='case $TF_CONFIG in *\"type\"*\"ps\"*) while :; do sleep 1000; done;; esac'
go 0 -n 4 --roles chief:1,ps:2 -- sh -c "$serve; echo \"done \$RANK\"" "$mark"
has '\[0\] done 0'
has '\[3\] done 3'
none_left "parameter servers"
# One that fails is a failure; so is a worker.
go 9 -n 3 --roles ps:1 -- sh -c '[ $RANK = 0 ] && exit 9; while :; do sleep 1000; done' "$mark"
has 'exit status 9: rank 0 of 3'
go 5 -n 3 --roles ps:1 -- sh -c '[ $RANK = 2 ] && exit 5; while :; do sleep 1000; done' "$mark"
has 'exit status 5: rank 2 of 3'
none_left "a failure"

# Started again: torchelastic's variables; servers again too, and the job ends with 0.
go 0 -n 3 --roles ps:1 --restarts 2 -- sh -c \
    'echo "start $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS in $TORCHELASTIC_RUN_ID."
     if [ $RANK = 0 ]; then : >"begun-$TORCHELASTIC_RESTART_COUNT"; while :; do sleep 1000; done; fi
     until [ -e "begun-$TORCHELASTIC_RESTART_COUNT" ]; do sleep 0.02; done
     [ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || { [ $RANK = 1 ] && exit 3; }; exit 0' "$mark"
grep -q '\[1\] start 0 of 2 in' out && grep -q '\[0\] start 1 of 2 in' out || fail "restarts"
[ "$(grep -o 'start [01] of 2 in [^ ]*\.$' out | sed 's/.* in //' | sort -u | wc -l)" = 1 ] ||
    fail "the run has several names"
none_left "restarts"

# Wrong usage is one line.
for bad in ps:0 ps:x chief:2,ps:2 ps,ps 'PS:1' ps: ,ps worker:1 'a"b:1'; do
    go 2 -n 3 --roles "$bad" -- true
    [ "$(wc -l <out)" = 1 ] || fail "--roles $bad: more than a line"
    has 'roles: '
done
go 2 -n 1:3 --roles ps:1 -- "$tandem"
has 'elastic ranks that join as tandem train does have no roles'
