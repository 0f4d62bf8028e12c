#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# data.distribute as a user sees it: files that only rank 0 has, on any number of ranks, give the
# digest of a run where every rank has them; what is wrong with them is said once; a rank that is
# killed while data travel ends the run.
. "$(dirname "$0")/lib.sh"

# Ranks find the files by a relative name, from where they are: rank 0 in first, others elsewhere.
mkdir first others
python3 - <<'PY'
import random
r = random.Random(1)
with open("first/train.csv", "w") as f:
    f.write("a,b,c,kind\n")
    for i in range(400):
        kind = r.choice(["cat", "dog", "ant"])
        f.write("%g,%g,%g,%s\n" % (r.random(), r.gauss(0, 3), i % 7, kind))
PY
cat >"$mark" <<'JOB'
name: kinds
model: [{linear: 16}, batch_norm, relu, {dropout: 0.1}, linear]
data: {source: csv, train: train.csv, label: kind, split: {test: 0.1}, maps: [normalize]}
train: {batch: 32, epochs: 3, accumulate: 2, optimizer: {name: adam, lr: 0.01}}
JOB
cat >each <<'SH'
#!/bin/sh
[ "$TANDEM_RANK" = 0 ] && cd "$1/first" || cd "$1/others"
shift
exec "$@"
SH
chmod +x each
# spread N ARGS...: a run whose files are in first/; output in ./out
spread() {
    local n=$1 in=$dir/first; shift
    set -- "$tandem" train "$mark" -q --set data.dir=. --set log.dir="$dir/runs" "$@"
    [ "$n" -gt 1 ] && set -- "$tandem" launch -n "$n" -- "$dir/each" "$dir" "$@"
    (cd "$in" && timeout $((2 * patience)) "$@") >out 2>&1
}

spread 1 || fail "a run on one rank"
want=$(digest)
[ -n "$want" ] || fail "no digest"
for method in broadcast chain all_gather scatter lazy index; do
    for n in 1 2 3 4 5; do
        for transport in shm tcp; do
            [ $((n % 2)) = 1 ] && [ $transport = tcp ] && [ $n != 3 ] && continue
            spread $n --set data.distribute=$method --set parallel.transport=$transport ||
                fail "$method -n $n $transport failed"
            [ "$(digest)" = "$want" ] || fail "$method -n $n $transport: another digest"
        done
    done
done
spread 3 && fail "every rank has the files"

# Wrong data: said once, by rank 0.
for method in broadcast scatter lazy index; do
    run 2 "$tandem" train "$mark" -q -n 3 --set data.dir=nowhere --set data.distribute=$method
    [ "$(grep -c '^tandem train:' out)" = 1 ] || fail "$method: missing data are not said once"
    has 'train.csv'
    printf 'a,b,kind\n1,2,dog\n3\n' >others/train.csv
    limited "$tandem" train "$mark" -q -n 3 --set data.dir=others \
        --set data.distribute=$method >out 2>&1 && fail "$method: a damaged file is fine"
    [ "$(grep -c '^tandem train:' out)" = 1 ] || fail "$method: damaged data are not said once"
done
run 2 "$tandem" train "$mark" -n 2 --set data.distribute=pigeon
none_left "wrong data"

# A file that is cut short while rows of it are asked for: said which, nothing is left.
python3 - <<'PY'
import struct
for part, n in ("train", 20000), ("t10k", 10):
    with open(part + "-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 2051, n, 28, 28) + bytes(n * 784))
    with open(part + "-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 2049, n) + bytes(i % 10 for i in range(n)))
PY
cat >"$mark" <<'JOB'
name: cut
model: [flatten, linear]
data: {source: idx, dir: ., distribute: scatter}
train: {batch: 32, micro_batches: 2, steps: 100000000, eval: {every: never}}
JOB
"$tandem" train "$mark" -n 2 --run-dir=cut >out 2>&1 &
launcher=$!
soon grep -q '"kind": "step"' cut/metrics.jsonl 2>/dev/null || fail "no step"
truncate -s 5000 train-images-idx3-ubyte
wait $launcher; got=$?
[ $got = 1 ] || fail "a file that is cut short gave $got"
has 'train-images-idx3-ubyte can no longer be read'
none_left "a file that was cut short"

# kill -9 of a rank while the data are on their way.
cat >"$mark" <<'JOB'
name: many
model: [flatten, linear]
data: {source: digits, count: 3000000}
train: {batch: 32, epochs: 1}
JOB
for method in broadcast chain all_gather; do
    rm -f out
    "$tandem" train "$mark" -n 3 --set data.distribute=$method >out 2>&1 &
    launcher=$!
    victim() {
        victim=$(pgrep -f "train .*-- $mark" | while read -r p; do
            grep -qz '^TANDEM_RANK=1$' "/proc/$p/environ" 2>/dev/null &&
                [ "$(awk '/VmRSS/ {print $2}' "/proc/$p/status")" -gt 20000 ] && echo "$p"; done)
        [ -n "$victim" ]
    }
    soon victim || fail "$method: no rank 1 with data"
    kill -9 "$victim"
    wait $launcher; got=$?
    [ $got = 1 ] || fail "$method: kill -9 of a rank gave $got"
    # Said by a survivor, or by the launcher if it ends them before they notice.
    tail -n 1 out | grep -qE 'train: .*rank 1 on .* died|killed by signal 9 .*: rank 1 of 3' ||
        fail "$method: not the cause"
    none_left "$method: the death of one"
done

# kill -9 of the rank that asks, and of the one that answers, while blocks and records are read.
cat >"$mark" <<'JOB'
name: asked
model: [flatten, linear]
data: {source: digits, count: 60000}
train: {batch: 32, micro_batches: 4, steps: 100000000, eval: {every: never}}
JOB
for method in lazy index; do
    for rank in 0 1; do
        rm -rf out asked
        "$tandem" train "$mark" -n 3 --run-dir=asked --set data.distribute=$method \
            --set parallel.transport=tcp >out 2>&1 &
        launcher=$!
        soon grep -q '"kind": "step"' asked/metrics.jsonl 2>/dev/null || fail "$method: no step"
        victim=$(pgrep -f "train .*-- $mark" | while read -r p; do
            grep -qz "^TANDEM_RANK=$rank\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done)
        [ -n "$victim" ] || fail "$method: no rank $rank"
        kill -9 "$victim"
        wait $launcher; got=$?
        [ $got = 1 ] || fail "$method: kill -9 of rank $rank gave $got"
        cause="train: .*rank $rank on .* died|killed by signal 9 .*: rank $rank of 3"
        tail -n 1 out | grep -qE "$cause" || fail "$method: not the cause"
        none_left "$method: the death of rank $rank"
    done
done

# Images that are cut anew in each epoch cannot be copied once.
cat >"$mark" <<'JOB'
model: [flatten, linear]
data: {source: images, dir: first, size: 8, resize: random}
train: {epochs: 1}
JOB
for method in broadcast lazy index; do
    run 2 "$tandem" train "$mark" -q -n 2 --set data.distribute=$method
    has "data.distribute: $method: not with data.resize: random"
done
