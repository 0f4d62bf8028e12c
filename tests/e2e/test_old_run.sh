#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run directory that an older version wrote (tests/golden/old_run), with the old names of keys in
# job.yaml and metrics.jsonl: every command reads it, and it is resumed as if nothing had changed.
. "$(dirname "$0")/lib.sh"
cp -r "$source/tests/golden/old_run" run || fail "cannot copy the run"
cat >job.yaml <<'YAML'
name: spirals
model: {name: mlp, hidden: [8]}
data: {source: spirals, count: 120}
train: {batch: 16, shards: 4, steps: 16, optimizer: {name: adam, lr: 0.01}}
parallel: {beside: 2}
checkpoint: {every: end}
log: {tensorboard: false}
YAML
warnings() { grep -c ' is now ' out; }

run 0 "$tandem" inspect run; has 'step *8'
run 1 "$tandem" status run; has "done after step 8"
run 0 "$tandem" eval run; has accuracy
[ "$(warnings)" = 0 ] || fail "eval of a run warns of its own job.yaml"
run 0 "$tandem" predict run -o out.csv

# Old names in a job file: one line for each, also on several ranks.
run 0 "$tandem" check job.yaml
has 'job.yaml:4:20: train.shards is now train.micro_batches'
has 'job.yaml:5:12: parallel.beside is now parallel.in_flight'
has 'micro_batches: 4'
run 0 "$tandem" train job.yaml -n 2 --run-dir two
[ "$(warnings)" = 2 ] || fail "$(warnings) lines about two keys"
grep -q '"micro_batches": 4' two/metrics.jsonl || fail "the name in a new metrics.jsonl"
two=$(digest)

# Resumed from the old file, the new one, on two ranks; each ends as a run without interruption,
# where this processor gives the bits of the one that wrote the run.
run 0 "$tandem" train job.yaml --resume=run
has 'resumed in run'
grep -q 'another job' out && fail "resuming warns of another job"
every_step "resumed" 16
grep -q '"shards": 4' run/metrics.jsonl || fail "the old lines are gone"
grep -q '"micro_batches": 4' run/metrics.jsonl || fail "no new line"
one=$(digest)
rm -r run; cp -r "$source/tests/golden/old_run" run
run 0 "$tandem" train job.yaml --resume=run -n 2 --set train.micro_batches=4
[ "$(digest)" = "$one" ] || fail "resumed on two ranks: other weights"
grep -q '16 samples in 4 micro-batches' run/report.html || fail "the report"
old=$(digest "$source/tests/golden/old_run/metrics.jsonl")
run 0 "$tandem" train job.yaml --run-dir eight --set train.steps=8
if [ "$(digest)" = "$old" ]; then
    [ "$one" = "$two" ] || fail "resumed: other weights than in one go"
fi

# A job that gives other numbers is still refused, with the new name.
run 2 "$tandem" train job.yaml --resume=run --set train.micro_batches=8
has 'train.micro_batches (4, now 8)'
