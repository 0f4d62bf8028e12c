#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A server that is stopped (SIGSTOP) on fixed ranks: who waits for it says so, goes on if it does,
# and ends the run with the rank of the server within the timeout of the job if it does not. Whoever
# was stopped as well, as in a job that is suspended, waits as long again.
. "$(dirname "$0")/lib.sh"

cat >"$mark" <<'JOB'
name: stopped
model: [flatten, {linear: 16, act: relu}, linear]
data: {source: digits, count: 300}
train: {batch: 48, epochs: 100000, eval: {every: never}}
parallel: {threads: 1, timeout: 6}
checkpoint: {every: end}
log: {report: false, tensorboard: false}
JOB
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"kind": *"step"'; }
past() { [ "$(steps "$1")" -ge "$2" ]; }
pid_of() { # RANK
    pgrep -f "train .*-- $mark" | while read -r p; do
        grep -qz "^TANDEM_RANK=$1\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done
}
found() { stopped=$(pid_of "$1"); [ -n "$stopped" ]; }
begin() { # RUN SERVER MORE...: a run of which that server is stopped when it has made some steps
    local name=$1 server=$2; shift 2
    "$tandem" train "$mark" -n 2 --servers 2 --run-dir="$name" "$@" >out 2>&1 &
    launcher=$!
    soon past "$name" 5 || fail "$name: the run made no steps"
    soon found "$server" || fail "$name: there is no server $server"
    kill -STOP "$stopped"
}
ended() { ! kill -0 $launcher 2>/dev/null; }
ends() { # NAME STATUS
    soon ended || fail "$1: the run does not end"
    wait $launcher; got=$?
    [ $got = "$2" ] || fail "$1: status $got"
    none_left "$1"
}

for which in "asgd 0 shm" "asgd 1 tcp" "sync 1 shm"; do
    read -r rule server transport <<<"$which"
    name=$rule-$server
    begin "$name" "$server" --sync "$rule" --set "parallel.transport=$transport"
    ends "$name" 1
    has "rank $server.* on host .*, pid $stopped, has not answered for [0-9.]* s: stopped"
done

# It is told of, and goes on.
begin on 0 --sync asgd --set parallel.timeout=60
said_soon "stall: .* for rank 0 .*pid $stopped): stopped"
kill -CONT "$stopped"
now=$(steps on)
soon past on $((now + 30)) || fail "a server that goes on: the run does not"
kill -TERM "$stopped"
ends on 130

# All are, for longer than the timeout; server 0 goes on last.
begin suspended 0 --sync asgd --set parallel.timeout=4 --set train.micro_batches=1 \
    --faults 'slow rank=2 for=700ms at=step:1;slow rank=3 for=700ms at=step:1'
others=$(pid_of 1; pid_of 2; pid_of 3)
kill -STOP $others
until=$((SECONDS + 5))
over() { [ $SECONDS -ge $until ]; }
soon over || fail "the clock stands still"
kill -CONT $others
until=$((SECONDS + 2))
soon over || fail "the clock stands still"
kill -CONT "$stopped"
now=$(steps suspended)
soon past suspended $((now + 8)) || fail "a job that was suspended does not go on"
kill -TERM "$stopped"
ends suspended 130

# A worker that stands still is left out: others do its batches, also where each has its own part of
# the data.
for with in data.seed=1 data.partition=even; do
    begin "worker-$with" 3 --sync asgd --servers 1 -n 3 --set parallel.timeout=8 --set "$with" \
        --set train.epochs=300 --set train.micro_batches=1 \
        --faults 'slow rank=1 for=5ms at=step:1;slow rank=2 for=5ms at=step:1'
    left_out() { grep -q 'it is given to another worker, and rank 3 is' out || ended; }
    soon left_out || fail "$with: nobody is left out"
    has 'it is given to another worker, and rank 3 is'
    soon past "worker-$with" 2100 || fail "$with: the run does not go on"
    kill -KILL "$stopped"
    ends "worker-$with" 0
done

# A server of rows that workers ask for.
cp "$source/examples/wide-and-deep.yaml" "$mark"
begin tables 1 --sync asgd --set parallel.timeout=6 --set train.epochs=100000 --threads 1
ends tables 1
has "pid $stopped, has not answered for [0-9.]* s: stopped"
