#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The directory of a run: one job at a time, a limit on the size of files, a directory that is
# removed while the run goes on.
source "$(dirname "$0")/lib.sh"

cat >"$mark" <<'END'
name: small
model: [flatten, {linear: 16, act: relu}, linear]
data: {source: digits, count: 256}
train: {batch: 32, steps: 24, optimizer: {name: adam, lr: 0.001}, eval: {every: never}}
checkpoint: {every: 4}
log: {tensorboard: false, report: false}
END
run 0 "$tandem" train "$mark" -q --run-dir quiet
want=$(digest)

# An elastic job whose rank 0 is killed keeps its directory: a resume is refused all the time.
elastic() {
    rm -rf run
    "$tandem" train "$mark" -q -n 2:2 -j 1 --run-dir run \
        --faults "$(slowly 0 1) kill rank=0 at=step:6" >first 2>&1 &
    pid=$!
    while_it_runs step 2 && limited "$tandem" train --resume=run -q >out 2>&1
    [ $? = 2 ] && kill -0 "$pid" 2>/dev/null || return 1
    has 'another job is training there'
    while_it_runs step 12 && limited "$tandem" train --resume=run -q >out 2>&1
    [ $? = 2 ] && kill -0 "$pid" 2>/dev/null || return 1
    has 'another job is training there'
}
patiently elastic
wait "$pid" || fail "the elastic job ended with $?: $(cat first)"
[ "$(digest first)" = "$want" ] || fail "another digest than that of one rank"
every_step "after a resume that was refused" 24
run 0 "$tandem" train --resume=run -q # its directory is free now

# SIGXFSZ would kill without a word.
(ulimit -f 8; run 1 "$tandem" train "$mark" -q --run-dir limited; has 'File too large') || exit 1

gone() {
    rm -rf gone was
    "$tandem" train "$mark" -q --run-dir gone --set checkpoint.every=end \
        --faults "$(slowly)" >out 2>&1 &
    pid=$!
    while_it_runs step 2 gone && mv gone was && kill -0 "$pid" 2>/dev/null
}
patiently gone
wait "$pid"
[ $? = 1 ] || fail "a run without its directory succeeded"
has 'gone was removed during the run'
