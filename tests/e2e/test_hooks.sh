#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Shell commands of a job (`on`), and the keys that count by ranks or steps: batch_per_rank,
# scale_lr, steps_per_epoch.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'YAML'
name: digits
model: [flatten, {linear: 16, act: relu}, linear]
data: {source: digits, count: 320, split: {valid: 0.2}}
train: {batch: 16, epochs: 3, micro_batches: 2, optimizer: {name: sgd, lr: 0.02}}
log: {tensorboard: false, report: false}
YAML
cat >hooks.yaml <<'YAML'
on:
  epoch: echo "$RUN_EVENT $RUN_EPOCH $RUN_STEP" >>said
  best: echo best >>bests
  end: >
    echo "$RUN_EVENT $RUN_STEP $(basename "$RUN_DIR") ${TANDEM_RANK:-none}" >>said;
    test -d "$RUN_DIR"
  fail: echo "$RUN_EVENT" >>said
YAML
cat job.yaml >>hooks.yaml
run 0 "$tandem" train job.yaml --run-dir plain
want=$(digest)
# One command may still run when the next is due: it is left out then, and said so. Here each is a
# moment, so wait for the file between runs only.
run 0 "$tandem" train hooks.yaml --run-dir hooked
same "commands change nothing"
grep -qx 'end 60 hooked none' said || fail "the end: $(cat said)"
# Nothing runs before the first; each of the others has run or is said to be left out.
grep -qx 'epoch 1 20' said || fail "the first epoch: $(cat said)"
left_out() { grep -c "on.$1: left out: the command before it is still running" out; }
[ $(($(grep -c '^epoch [123] [246]0$' said) + $(left_out epoch))) = 3 ] ||
    fail "not three epochs: $(cat said out)"
best=$(grep -c 'valid:.* best$' out)
[ $(($(cat bests 2>/dev/null | wc -l) + $(left_out best))) = "$best" ] && [ "$best" -ge 1 ] ||
    fail "not $best times the best: $(cat out)"
rm -f said bests
grep -v 'epoch:' hooks.yaml >bests.yaml
run 0 "$tandem" train bests.yaml --run-dir bests-alone
[ -s bests ] && grep -qx best bests || fail "on.best alone has not run: $(cat out)"
rm said
run 0 "$tandem" train hooks.yaml --run-dir two -n 2
same "two ranks"
[ "$(grep -c '^end' said)" = 1 ] || fail "the end on two ranks: $(cat said)"
rm said
run 0 "$tandem" train hooks.yaml --run-dir odd --set 'on.end=exit 3' --set train.epochs=1
has 'on.end: the command ended with status 3'
# A run that fails: the rate is too high for the loss to stay finite.
run 1 "$tandem" train hooks.yaml --run-dir lost --set train.optimizer.lr=1e30
grep -qx fail said || fail "no command of fail"
rm said
# A run's own copy of the job starts nothing.
run 0 "$tandem" train hooks.yaml --run-dir half --set train.steps=10 --set on.end=true
rm -f said
run 0 "$tandem" train --resume=half --set train.steps=20
[ ! -e said ] || fail "a resumed run without its job file ran commands: $(cat said)"

# Keys that count by ranks or steps.
run 0 "$tandem" train job.yaml --run-dir a --set train.batch_per_rank=8 \
    --set train.micro_batches=1 -n 2
same "8 samples of each of two ranks are a batch of 16"
run 0 "$tandem" train job.yaml --run-dir b --set train.optimizer.lr=0.01 \
    --set train.optimizer.scale_lr=true -n 2
same "twice the rate on two ranks"
run 0 "$tandem" train job.yaml --run-dir c --set train.steps_per_epoch=12 --set train.epochs=5
same "5 epochs of 12 steps are 60 steps"
[ "$(grep -c '"kind": "eval"' c/metrics.jsonl)" -ge 5 ] || fail "no epochs of 12 steps"
run 2 "$tandem" check job.yaml --set train.optimizer='{name: sgd, scale_lr: true}'
has 'train.optimizer.scale_lr: needs train.optimizer.lr'
sed 's/epochs: 3/steps: 3/' job.yaml >steps.yaml
run 2 "$tandem" check steps.yaml --set train.steps_per_epoch=3
has 'train.steps_per_epoch: needs train.epochs'

# Resumed on another number of ranks, an epoch goes on at the sample where it stood.
stands() { # RUN BATCH: at the beginning of this one
    grep -q "\"batch_in_epoch\": $2," "$1/checkpoints/$(cat "$1/checkpoints/latest")/state.json" ||
        fail "$1 does not stand at batch $2"
}
per_rank=(--set train.batch_per_rank=16 --set train.micro_batches=1 --set train.epochs=1)
run 0 "$tandem" train job.yaml --run-dir moved "${per_rank[@]}" --set train.steps=3 -n 2
stands moved 3
run 0 "$tandem" train --resume=moved --set train.steps=5
stands moved 8
run 0 "$tandem" train --resume=moved --set train.steps=6 -n 2
stands moved 5
run 0 "$tandem" train job.yaml --run-dir uneven "${per_rank[@]}" --set train.steps=1 -n 3
run 0 "$tandem" train --resume=uneven --set train.steps=2 -n 2
has 'saved at sample 48 of its epoch, where no batch of 32 begins (batches were 48): 16 samples'
stands uneven 2

# Without train.steps nobody knows how many steps are left of the epochs.
run 0 "$tandem" train job.yaml --run-dir counted "${per_rank[@]}" -n 2
run 2 "$tandem" train --resume=counted --set train.epochs=2
has 'was trained with batches of 32, now 16: resume on as many ranks, or say with train.steps'
run 0 "$tandem" train --resume=counted --set train.epochs=2 -n 2

# Samples in the order of the data, the same in each epoch and on any number of ranks.
run 0 "$tandem" train job.yaml --run-dir d --set train.shuffle=false
want=$(digest)
run 0 "$tandem" train job.yaml --run-dir e --set train.shuffle=none -n 2
same "unshuffled on two ranks"
run 0 "$tandem" train job.yaml --run-dir f
[ "$(digest)" != "$want" ] || fail "shuffled all the same"
