#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Elastic training as a user sees it, with real processes: kills of one rank, of rank 0 and of all,
# stops, cuts, a full disk, a wrong bit; every case ends with the digest of the quiet run,
# metrics.jsonl has every step once, and nothing is left behind.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: spirals
model:
  - {linear: 24, act: relu}
  - batch_norm
  - dropout: 0.1
  - linear
loss: cross_entropy
metrics: [accuracy]
data:
  source: spirals
  count: 500
  split: {valid: 0.1, test: 0.1}
train:
  batch: 64
  steps: 24
  eval: {every: 6}
  clip: {norm: 1}
  optimizer: {name: adam, lr: 0.01}
checkpoint: {every: 4}
JOB
run 0 "$tandem" train "$mark" -q --run-dir quiet
want=$(digest)

# elastic NAME ARGUMENTS...: the quiet run's digest, metrics and checkpoint. Where nobody is stopped
# the lease is long: there are no faults by load.
elastic() {
    local name=$1 lease=10s; shift
    case $name in *stop*) lease=1s ;; esac
    rm -rf run
    run 0 "$tandem" train "$mark" -q --run-dir run --elastic --lease $lease "$@"
    [ "$(digest)" = "$want" ] || fail "$name: another digest than that of the quiet run"
    every_step "$name" 24
    evals=$(grep '"part": "valid"' run/metrics.jsonl | grep -o '"step": [0-9]*' | grep -o '[0-9]*$')
    [ "$evals" = "$(seq 6 6 24)" ] || fail "$name: metrics.jsonl has validations of $evals"
    [ "$(grep -c '"kind": "end"' run/metrics.jsonl)" = 1 ] || fail "$name: not one end"
    like_quiet "$name" model.safetensors
    [ -z "$(find run -name '*tmp*')" ] || fail "$name: something is left half written"
    [ -f run/report.html ] || fail "$name: no report"
    none_left "$name"
}

elastic quiet -n 3
while read -r ranks faults; do
    elastic "$faults" -n "$ranks" --faults "$faults"
    grep -q 'fault: ' out || fail "$faults: never happened"
done <<'CASES'
3 kill rank=2 at=step:17:allreduce:1
3 kill rank=0 at=step:12
2 kill rank=1 at=step:8:barrier; kill rank=0 at=step:16:comm:2
4 kill rank=3 at=step:3; kill rank=0 at=step:9; kill rank=1 at=step:15; kill rank=0 at=step:21
3 kill rank=0 at=step:12:state.json
2 kill rank=0 at=step:12:metrics; kill rank=0 at=step:14; kill rank=1 at=step:14
3 kill rank=1 at=step:6:comm:3
3 stop rank=1 for=3s at=step:8
3 cut 0-1 at=step:5
2 full rank=0 at=step:8:rename
1 kill rank=0 at=step:10
2 slow rank=1 for=1ms at=step:1
CASES
[ "$(grep -c 'killed by signal 9' out)" = 0 ] || fail "a slow rank was killed"
# A seed gives the same faults to every run, and what happened to a run can be had again.
elastic seed -n 3 --faults 'seed=7,rate=1/12steps'
[ "$(wc -l <run/faults.txt)" = 2 ] || fail "not one fault in every twelve steps"
cp run/faults.txt first
elastic 'the same seed' -n 3 --faults 'seed=7,rate=1/12steps'
diff first run/faults.txt || fail "the same seed gave other faults"
elastic 'the same faults' -n 3 --faults "@$dir/first"
diff first run/faults.txt || fail "a file of faults gave others"
elastic flip -n 3 --faults 'flip rank=1 at=step:9' --set train.verify=1
has 'rank 1 computed the gradients of micro-batch [0-9]* of step 9 wrongly'

# A rank that beats but goes no further is killed, and not those that wait for it; so is one that
# does not leave when the others do.
while read -r faults; do
    elastic "$faults" -n 3 --hang 2s --faults "$faults"
    has 'rank 1 (host .*) made no step forward .*: \(compute\|network\), in .* at step 5 for .* s'
    [ "$(grep -c 'and was killed: .*replacement' out)" = 1 ] ||
        fail "$faults: others were killed too"
done <<'CASES'
hang rank=1 at=step:5
hang rank=1 at=step:5:comm:1
hang rank=1 at=step:5:comm:1; kill rank=2 at=step:5:comm:1
slow rank=1 for=50ms at=step:4; kill rank=2 at=step:5; hang rank=1 at=step:5:comm:1
CASES
elastic 'a short hang' -n 3 --hang 5s --faults 'hang rank=1 for=1s at=step:5'
! grep -q 'was killed\|replacement' out || fail "a rank that was slow was killed"

# A host that computes wrongly goes with all of its ranks, if there are others.
printf '#!/bin/sh\nshift\nexec "$@"\n' >rsh
chmod +x rsh
rm -rf run
run 0 "$tandem" launch --hosts localhost:2,b:2 --lease 10s --listen 127.0.0.1 --ssh "$dir/rsh" \
    -n 1:4 -- "$tandem" train "$mark" -q -j 1 --run-dir "$dir/run" --set train.micro_batches=8 \
    --set train.verify=1 --faults 'flip rank=2 at=step:9; slow rank=0 for=20ms at=step:1'
has 'rank 2 (host b, .* computed the gradients of micro-batch .*; continuing without this host'
has 'now 2 ranks (generation [0-9]*)'
last=$(grep -o 'now [0-9]* ranks (generation' out | tail -n 1)
[ "$last" = "now 2 ranks (generation" ] || fail "a host that computes wrongly came back"
with=$(digest)
run 0 "$tandem" train "$mark" -q --run-dir eight --set train.micro_batches=8
[ "$(digest)" = "$with" ] || fail "a wrong host: another digest"
# Over TCP, where gradients leave while micro-batches are still being run.
run 0 "$tandem" train "$mark" -q -n 2 -j 1 --run-dir tcp --set train.micro_batches=8 \
    --set train.verify=1 --set parallel.transport=tcp
[ "$(digest)" = "$with" ] || fail "verified over TCP: another digest"

# Faults are read before anything begins.
run 2 "$tandem" train "$mark" --elastic -n 2 --run-dir no --faults 'kill rank=1'
has 'expected kill rank=2 at=step:17'
run 2 "$tandem" train "$mark" --elastic -n 2 --run-dir no --faults 'kill rank=1 at=step:3:alreduce'
has 'unknown operation "alreduce"'
run 2 "$tandem" train "$mark" --elastic -n 2 --run-dir no --faults @no-such-file
has 'cannot read no-such-file'
[ ! -e no ] || fail "a run's directory was made"
for wrong in parallel.backup=1 data.distribute=chain 'parallel.zero=2 --set train.verify=0.1'; do
    # shellcheck disable=SC2086 # the last one is two flags
    run 2 "$tandem" train "$mark" --elastic -n 2 --run-dir no --set $wrong
    [ "$(wc -l <out)" = 1 ] || fail "$wrong: more than one line"
    [ ! -e no ] || fail "$wrong: a directory is left"
done
run 2 "$tandem" train "$mark" --faults-sweep
has 'the number of ranks is missing'

# A live run.
live() { # ARGUMENTS...
    rm -rf run
    "$tandem" train "$mark" -q --run-dir run --elastic --lease 10s --set train.steps=120 \
        --faults "$(slowly)" "$@" >out 2>&1 &
    pid=$!
}
rank_0() { "$tandem" status run | awk '$1 == "0" { print $3; found = 1 } END { exit !found }'; }
agent() { pgrep -P $pid | head -n 1; }
# same NAME: the run ends well, and as if nothing had happened
same() {
    wait $pid || fail "$1: status $?"
    [ "$(digest)" = "$long" ] || fail "$1: another digest than that of the quiet run"
    every_step "$1" 120
    [ ! -e run/control ] || fail "$1: the control file is left"
    none_left "$1"
}
run 0 "$tandem" train "$mark" -q --run-dir long --set train.steps=120
long=$(digest)

# Grow from 2 to 4 and shrink to 1 in mid-run.
scaled() {
    live -n 2
    while_it_runs step 3 && while_it_runs test -e run/control && "$tandem" scale run 4 >/dev/null &&
        while_it_runs said 'now 4 ranks (generation [0-9]*)' && "$tandem" scale run 1 >/dev/null &&
        while_it_runs said 'now 1 rank (generation [0-9]*):' || return 1
    same scale
}
patiently scaled

# A spare takes over from rank 0, and from who took over from it; all of them at once.
spare() { "$tandem" status run | awk '$1 $5 == "-spare" { found = 1 } END { exit !found }'; }
spared() {
    live -n 2 --spares 1
    while_it_runs step 3 && while_it_runs spare && while_it_runs rank_0 >id && xargs kill -9 <id &&
        while_it_runs said 'now 2 ranks (generation 2)' && while_it_runs step 30 || return 1
    pgrep -P "$(agent)" | xargs -r kill -9
    same spare
}
patiently spared

# The only agent is killed: no orphan, and --resume goes on.
orphaned() {
    live -n 2
    while_it_runs step 30 && kill -9 "$(agent)" && ! wait $pid
}
patiently orphaned
tail -n 1 out | grep -q 'the agent on host localhost was lost, and no other is left' || fail "cause"
none_left "kill -9 of the agent"
"$tandem" train "$mark" -q --resume=run --elastic -n 3 --set train.steps=120 >out 2>&1 &
pid=$!
same resume

# What is wrong with the job ends it at once: the cause is the last line, nobody is started again.
rm -rf run
run 1 "$tandem" train "$mark" -q --run-dir run --elastic -n 3 --set train.optimizer.name=sgd \
    --set train.optimizer.lr=1e30
tail -n 1 out | grep -q 'the loss is nan at step 2, micro-batch .*batch_norm1' ||
    fail "not the cause"
! grep -q 'generation 2' out || fail "a job that cannot go on was tried again"
none_left "the run"

# No room for the last checkpoint: nothing is tried again, the result is said, and one line says why
# it is not saved; --resume makes up for it.
rm -rf run
run 1 "$tandem" train "$mark" -q --run-dir run --elastic -n 2 \
    --faults "$(printf 'full rank=0 at=step:24:state.json:%d;' 1 2 3 4)" # as often as it tries
[ "$(digest)" = "$want" ] || fail "no room at the end: another digest"
tail -n 1 out | grep -q \
    'step 24 is done but its checkpoint could not be written: no space .* --resume=.*/run$' ||
    fail "no room at the end: not the cause"
[ "$(grep -c 'no space left' out)" = 1 ] || fail "no room at the end: more than one line"
! grep -q 'generation 2' out || fail "no room at the end: tried again"
[ -z "$(find run -name '*tmp*')" ] || fail "no room at the end: something is left half written"
none_left "no room at the end"
run 0 "$tandem" train "$mark" -q --resume=run --elastic -n 2
[ "$(digest)" = "$want" ] || fail "saved later: another digest"
run 2 "$tandem" train "$mark" -q --run-dir no --elastic -n 2 --profile
has 'start fixed ranks, not elastic ones'
[ ! -e no ] || fail "a run's directory was made"

# A disk that is really full, and is not any more: lines and checkpoints wait for room.
mkdir small
fill() { # ARGUMENTS...: a run, and its disk as full as can be after a few steps
    rm -rf small/*
    "$tandem" train "$mark" -q --run-dir small/run --elastic -n 2 --lease 10s \
        --set log.report=false --faults "$(slowly)" "$@" >out 2>&1 &
    pid=$!
    while_it_runs step 5 small/run || return 1
    dd if=/dev/zero of=small/filler bs=4k status=none 2>/dev/null
    kill -0 $pid 2>/dev/null
}
filled() {
    fill || return 1
    while_it_runs said 'no checkpoint was written'
    local full=$?
    rm small/filler
    return $full
}
if mount -t tmpfs -o size=2m none small 2>/dev/null; then
    also_clean() { umount "$dir/small"; }
    patiently filled
    wait $pid || fail "a full disk ended the run: $?"
    [ "$(digest)" = "$want" ] || fail "full disk: another digest"
    ! grep -q 'generation 2' out || fail "a full disk cost a rank"
    [ "$(grep -c '"kind": "step"' small/run/metrics.jsonl)" = 24 ] || fail "full disk: lost lines"
    [ "$(cat small/run/checkpoints/latest)" = step-00000024 ] || fail "full disk: no checkpoint"
    [ -z "$(find small -name '*tmp*')" ] || fail "full disk: something is left half written"
    # Full to the end: no line is broken.
    filled_for_good() {
        fill --set checkpoint.keep=1 || return 1
        wait $pid
        [ $? = 1 ]
    }
    patiently filled_for_good
    [ "$(digest)" = "$want" ] || fail "full to the end: another digest"
    tail -n 1 out | grep -q 'step 24 is done but its checkpoint could not be written' ||
        fail "full to the end: why"
    ! grep -q 'generation 2' out || fail "full to the end: tried again"
    [ -z "$(find small -name '*tmp*')" ] || fail "full to the end: something is left half written"
    [ "$(tail -c 1 small/run/metrics.jsonl | od -An -tx1)" = " 0a" ] || fail "a broken line"
    rm small/filler
fi

# SIGTERM to ranks: to all of them (a scheduler wants the host back), or one after the other until
# too few would be left. The run is interrupted, with a checkpoint, and nobody is started again.
terminated() {
    live -n $n --faults "$(slowly 0 1 2)"
    while_it_runs step 5 || return 1
    if [ $n = 3 ]; then
        pgrep -P "$(agent)" | xargs kill -TERM
    else
        pgrep -P "$(agent)" | head -n 1 | xargs kill -TERM
        while_it_runs said 'now 2 ranks (generation 2): 1 left' || return 1
        rank_0 | xargs kill -TERM # who was asked first may not be gone yet
    fi
    wait $pid
    [ $? = 130 ]
}
for n in 3 2:3; do
    patiently terminated
    tail -n 1 out | grep -q 'interrupted after step [0-9]*; to continue: ' ||
        fail "SIGTERM: last line"
    [ "$(grep -c 'interrupted after step' out)" = 1 ] || fail "SIGTERM to ranks of $n: went on"
    ! grep -q 'was killed\|exit status\|replacement' out ||
        fail "SIGTERM to ranks of $n: taken for a failure"
    step=$(sed -n 's/.*interrupted after step \([0-9]*\);.*/\1/p' out)
    [ "$(cat run/checkpoints/latest)" = "$(printf 'step-%08d' "$step")" ] || fail "no checkpoint"
    none_left "SIGTERM to ranks of $n"
    "$tandem" train "$mark" -q --resume=run --elastic -n 2 --set train.steps=120 >out 2>&1 &
    pid=$!
    same "SIGTERM to ranks of $n"
done

# SIGTERM to the only rank that is there while another is away: it stays until that one is back.
needed() {
    live -n 2
    while_it_runs step 5 && while_it_runs rank_0 >id || return 1
    other=$(pgrep -P "$(agent)" | grep -vx "$(cat id)")
    kill -STOP "$other"
    while_it_runs said 'now 1 rank (generation 2): rank 1 on host localhost is stopped' || return 1
    xargs kill -TERM <id
    kill -CONT "$other"
    while_it_runs said 'now 1 rank (generation 4): 1 left' || return 1
    same "SIGTERM to who is needed"
}
patiently needed

# Ctrl-C interrupts all, and --resume goes on with another number of ranks.
interrupted() {
    rm -rf run
    "$tandem" train "$mark" -q --run-dir run --elastic -n 3 --faults "$(slowly)" >out 2>&1 &
    pid=$!
    while_it_runs step 5 && kill -INT $pid || return 1
    wait $pid
    [ $? = 130 ]
}
patiently interrupted
run 0 "$tandem" train "$mark" -q --resume=run --elastic -n 2
[ "$(digest)" = "$want" ] || fail "resumed: another digest"
run 0 "$tandem" train "$mark" --resume=run --elastic -n 2
has 'is already finished'
none_left "the run"
