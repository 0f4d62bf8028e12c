#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Rows of tables on servers are updated once by every batch that a checkpoint counts, and by no
# other, whatever is under way when it is made. Every sample has all ids, and the gradient of a row
# is -1 in every batch (huber, far from its target): a row times 1/lr is the number of its updates,
# which is the step of the file that it lies in. So it is for every asynchronous rule, also after
# kill -9 of all ranks and a resume, of a worker, and after a request to stop and a resume.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "python3 is not there" >&2; exit 77; }

cat >npy.py <<'END'
import struct

def npy(name, descr, shape, values):
    head = "{'descr': '<%s4', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    with open(name, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode())
        f.write(struct.pack('<%d%s' % (len(values), descr), *values))

n = 256
npy('ids.npy', 'i', (n, 8), list(range(8)) * n)
npy('x.npy', 'f', (n, 2), [i % 7 for i in range(2 * n)])
npy('y.npy', 'f', (n,), [1e6] * n)
END
python3 npy.py || fail "no data"

# count.py RUN: files of tables at every step, of which all rows have as many updates
cat >count.py <<'END'
import collections, os, struct, sys

folder = sys.argv[1] + '/checkpoints/tables/'
seen = collections.defaultdict(dict) # step -> id -> updates
for name in os.listdir(folder):
    step = int(name.split('.')[3])
    data = open(folder + name, 'rb').read()
    gone, rows = struct.unpack_from('<QQ', data, 24)
    for i in range(rows):
        id, _, value = struct.unpack_from('<qQf', data, 40 + 8 * gone + 20 * i)
        seen[step][id] = value * 1024
wrong = ['step %d: %s' % (s, sorted(seen[s].items())) for s in sorted(seen)
         if seen[s] != dict.fromkeys(range(8), s)]
if wrong or not seen:
    sys.exit('%d of %d files have other counts, %s' % (len(wrong), len(seen), wrong[:3]))
print('step', max(seen))
END
counts() { # RUN STEP: its last files are of this one
    python3 count.py "$1" >counts 2>&1 || fail "$1: $(cat counts)"
    [ "$(cat counts)" = "step $2" ] || fail "$1: $(cat counts), not $2"
}

cat >"$mark" <<'END'
name: rows
model:
  input: ids
  layers:
    - {embedding: 1, name: emb, vocab: 8, on: servers, std: 0}
    - {sum: , as: rows}
    - {linear: 1, from: x}
    - add: rows
loss: huber
data: {source: npy, train: "ids=ids.npy,x=x.npy,y=y.npy", target: number, split: {valid: 0}}
train:
  batch: 4
  epochs: 2
  optimizer: {name: sgd, lr: 0.0009765625}
  eval: {every: never}
checkpoint: {every: 1, keep: 10000}
log: {report: false, tensorboard: false}
END
for rule in asgd stale ssp downpour; do
    run 0 "$tandem" train "$mark" -n 3 --servers 2 --sync $rule --run-dir $rule --threads 1
    counts $rule 128
done
run 0 "$tandem" train "$mark" -n 3 --servers 2 --run-dir rare --threads 1 \
    --set train.sync=downpour --set train.sync.n_push=3 --set train.sync.n_fetch=2
counts rare 128
run 0 "$tandem" train "$mark" -n 2 --servers 2 --sync asgd --run-dir tcp --threads 1 \
    --set parallel.transport=tcp
counts tcp 128

# Where several workers pull rows in no order, a replay would have other bits: it is refused. With
# one worker it has the same.
run 2 "$tandem" train --replay asgd --run-dir never
has 'parallel.replay: not with tables on servers and 3 workers'
[ "$(wc -l <out)" = 1 ] && [ ! -e never ] || fail "a replay with tables: more than a line"
run 0 "$tandem" train "$mark" -q -n 1 --servers 2 --sync asgd --run-dir one --threads 1
want=$(digest)
run 0 "$tandem" train --replay one -q --run-dir one-again --threads 1
[ "$(digest)" = "$want" ] || fail "replay: other weights"
diff -r one/checkpoints/tables one-again/checkpoints/tables || fail "replay: other rows"

pid_of() { # RANK
    pgrep -f "train .*-- $mark" | while read -r p; do
        grep -qz "^TANDEM_RANK=$1\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done
}
saved() { [ -d "$1/checkpoints/step-00000020" ]; }
# interrupted RUN STATUS COMMAND [TEXT]: a run that ends with the status, and says the text, since
# the command was given after some checkpoints; a longer one if it was over before. $epochs: how
# long
interrupted() {
    for epochs in 4 8 20; do
        rm -rf "$1"
        "$tandem" train "$mark" -n 3 --servers 2 --sync asgd --run-dir="$1" --threads 1 \
            --set train.epochs=$epochs >out 2>&1 &
        launcher=$!
        soon saved "$1" || fail "$1: no checkpoint was made"
        "$3"
        wait $launcher; got=$?
        [ $got = "$2" ] && { [ $# = 3 ] || said "$4"; } && return
        [ $got = 0 ] || fail "$1: $3: $got"
    done
    fail "$1: it is over before $3, or does not tell of it"
}
kill_all() { for p in $(processes); do kill -KILL "$p" 2>/dev/null; done; }
kill_worker() { pid_of 3 | while read -r p; do kill -KILL "$p"; done; }
ask_to_stop() { kill -TERM $launcher 2>/dev/null; }

interrupted killed 137 kill_all
run 0 "$tandem" train --resume=killed -n 2 --servers 1 --threads 1 \
    --set train.epochs=$((epochs + 1))
counts killed $((64 * (epochs + 1)))

# A worker that stands still is left out, and its batches are given to others; it comes back, or
# does not.
begun() { [ -d "$1/checkpoints/step-00000005" ]; }
for run in back gone; do
    "$tandem" train "$mark" -n 3 --servers 2 --sync asgd --run-dir=$run --threads 1 \
        --faults 'slow rank=4 for=2ms at=step:2' >out 2>&1 &
    launcher=$!
    soon begun $run || fail "$run: no checkpoint was made"
    stopped=$(pid_of 4)
    [ -n "$stopped" ] && kill -STOP "$stopped"
    said_soon 'rank 4 has had step .* it is given to another worker'
    [ $run = gone ] || kill -CONT "$stopped"
    wait $launcher || fail "$run: a worker that stands still ends the run"
    counts $run 128
done

interrupted worker 0 kill_worker 'continues with 2 of 3 workers'
counts worker $((64 * epochs))

interrupted asked 130 ask_to_stop
run 0 "$tandem" train --resume=asked -n 3 --servers 2 --threads 1 --set train.epochs=$((epochs + 1))
counts asked $((64 * (epochs + 1)))
