#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A client outside the world of a run with parameter servers: `tandem predict --live` sends samples
# while training goes on, and gets the outputs of the params of that moment.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: net
model: [flatten, {linear: 32, act: relu}, linear]
data: {source: digits, count: 600}
train: {batch: 48, epochs: 1000000, eval: {every: never}, optimizer: {name: sgd, lr: 0.0001}}
parallel: {threads: 1}
checkpoint: {every: 10, keep: 1}
log: {report: false, tensorboard: false}
JOB
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"kind": *"step"'; }
past() { [ "$(steps "$1")" -ge "$2" ]; }
step_of() { grep -o 'step [0-9]*$' out | grep -o '[0-9]*'; }
begin() { # FOLDER ARGUMENTS...
    local folder=$1; shift
    "$tandem" train "$mark" -q --run-dir "$folder" "$@" >log 2>&1 &
    launcher=$!
    soon test -e "$folder/checkpoints/latest" || fail "the run did not start: $(cat log)"
}
finish() {
    kill -TERM $launcher
    wait $launcher
    none_left "the run"
}

# Two servers have a shard each: the outputs are those of whole params, of later and later steps.
begin two -n 2 --servers 2 --sync asgd
run 0 "$tandem" predict two --live --part test -o first.npy
first=$(step_of)
soon past two $((first + 20)) || fail "the run does not go on"
run 0 "$tandem" predict two --live --part test -o second.npy
second=$(step_of)
[ "$second" -gt "$first" ] || fail "steps $first and $second"
cmp -s first.npy second.npy && fail "the outputs do not change with the params"
[ "$(stat -c %a two/checkpoints/outputs)" = 600 ] || fail "the secret is for others to read"
# Checkpoints are removed before they were read: the newest is looked for again.
for _ in 1 2 3 4 5; do run 0 "$tandem" predict two --part test -o saved.npy; done
! grep -q WARN out || fail "a warning of what is as it should be"
# Nonsense: files of other data; a stranger without the secret.
printf 'a,b\n1,2\n' >other.csv
run 2 "$tandem" predict two --live --input other.csv -o other.npy
now=$(steps two)
soon past two $((now + 10)) || fail "nonsense stops the run"
finish
[ ! -e two/checkpoints/outputs ] || fail "the file stays"
run 2 "$tandem" predict two --live --part test -o late.npy
has 'is a job running there'

# Params that do not change: what the run answers is what its checkpoint says, bit for bit.
for rule in sync asgd; do
    begin still-$rule -n 2 --servers 1 --sync $rule --set train.optimizer.lr=1e-45
    run 0 "$tandem" predict still-$rule --live --part test -o live.npy
    run 0 "$tandem" predict still-$rule --part test -o saved.npy
    cmp live.npy saved.npy || fail "$rule: other outputs than those of the checkpoint"
    finish
done

# From another host: a copy of the run's files is enough, and without the certificate it is not.
begin far -n 2 --servers 2 --sync asgd --set parallel.clients=127.0.0.1:0
cp -r far copy
! grep -q unix: copy/checkpoints/outputs || fail "it listens on its host alone"
[ "$(stat -c %a far/checkpoints/outputs.tls/key.pem)" = 600 ] ||
    fail "the key is for others to read"
run 0 "$tandem" predict copy --live --part test -o far.npy
far=$(step_of)
run 0 "$tandem" predict copy --part test -o near.npy
[ "$far" -ge "$(step_of)" ] || fail "steps $far and $(step_of)"
mkdir other
"$tandem" train "$mark" -q --run-dir other/run -n 2 --servers 2 --sync asgd \
    --set parallel.clients=127.0.0.1:0 >other.log 2>&1 &
second=$!
soon test -e other/run/checkpoints/latest || fail "the other run did not start: $(cat other.log)"
cp other/run/checkpoints/outputs.tls/* copy/checkpoints/outputs.tls/
run 2 "$tandem" predict copy --live --part test -o never.npy
has "is not part of this job"
kill -TERM $second
wait $second
finish
[ ! -e far/checkpoints/outputs ] && [ ! -e far/checkpoints/outputs.tls ] || fail "the files stay"
for address in 0.0.0.0:0 here unix:x; do
    run 2 "$tandem" train "$mark" -n 2 --servers 1 --sync asgd --run-dir never \
        --set parallel.clients=$address
    has "parallel.clients: '$address' is no HOST:PORT"
done
run 1 "$tandem" train "$mark" -n 2 --servers 1 --sync asgd --run-dir never \
    --set parallel.clients=192.0.2.1:0
has 'parallel.clients: cannot listen on 192.0.2.1:0'
