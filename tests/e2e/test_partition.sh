#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# data.partition: which samples each of four ranks has. A linear model without bias on a table whose
# row i is 1 in column i only: weight i moves once for each time that a rank had sample i, so the
# averaged weights of a short run tell how often each sample was used.
. "$(dirname "$0")/lib.sh"
export PYTHONDONTWRITEBYTECODE=1

cat >counts.py <<'END'
import json, struct, sys
N, LR, RANKS = 32, 0.01, 4

def make():
    with open("rows.csv", "w") as f:
        print(",".join(f"c{i}" for i in range(N)) + ",y", file=f)
        for i in range(N):
            print(",".join("1" if i == j else "0" for j in range(N)) + ",1", file=f)
    head = json.dumps({"linear1.weight": {"dtype": "F32", "shape": [1, N],
                                          "data_offsets": [0, 4 * N]}}).encode()
    with open("zeros.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + bytes(4 * N))

def counts(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    a, b = json.loads(data[8:8 + n])["linear1.weight"]["data_offsets"]
    w = struct.unpack(f"<{N}f", data[8 + n + a:8 + n + b])
    # Two rows of a rank in a step: the gradient of mean (w_i - 1)^2 over them is w_i - 1.
    seen = [x * RANKS / LR for x in w]
    assert all(abs(s - round(s)) < 0.05 * max(1, s) for s in seen), seen
    return [round(s) for s in seen]

def check(mode, steps, got):
    each = N // RANKS
    if mode == "even":  # ranges, in the order of the data
        want = [1 if i % each < 2 * steps else 0 for i in range(N)]
    elif mode == "weighted":  # ranges of 4, 8, 4 and 16 samples, begun again at their ends
        want = []
        for size in (4, 8, 4, 16):
            want += [2 * steps // size + (i < 2 * steps % size) for i in range(size)]
    elif mode == "shuffled":  # dealt out: without shuffling, 0 to rank 0, 1 to rank 1, ...
        want = [1 if i < 2 * steps * RANKS else 0 for i in range(N)]
    elif mode == "features":  # rank r has rows 2r, 2r+1 of a batch of 8, and its range of columns
        want = [1 if i < 8 * steps and i % 8 // 2 == i // each else 0 for i in range(N)]
    else:  # drawn again and again: as many, but not each once
        assert sum(got) == 8 * steps and max(got) > 1, (mode, got)
        return
    assert got == want, (mode, steps, got, want)

if sys.argv[1] == "make":
    make()
else:
    check(sys.argv[1], int(sys.argv[2]), counts(sys.argv[3]))
END
python3 counts.py make || fail "no table"
cat >job.yaml <<'YAML'
name: counts
model: {layers: [{linear: 1, bias: false}], from: zeros.safetensors}
loss: mse
data: {source: csv, train: rows.csv, label: y, target: number, split: {valid: 0}}
train: {batch: 8, steps: 4, shuffle: none, optimizer: {name: sgd, lr: 0.01},
  sync: {rule: ma, tau: 4}}
log: {tensorboard: false, report: false}
YAML
printf 'data: {partition: weighted, weights: [1, 2, 1, 4]}\n' >weighted.yaml
last=checkpoints/step-00000004/model.safetensors
for mode in even weighted replacement shuffled features; do
    with=(--set "data.partition=$mode")
    [ $mode != weighted ] || with=(--set @weighted.yaml)
    for steps in 2 4; do
        run 0 "$tandem" train job.yaml -q -n 4 --threads 1 --run-dir $mode$steps "${with[@]}" \
            --set train.steps=$steps
        run 0 "$tandem" export $mode$steps -o $mode$steps.safetensors
        python3 counts.py $mode $steps $mode$steps.safetensors 2>out || fail "$mode: $(tail -1 out)"
    done
    # Another run of the same job has the same samples.
    run 0 "$tandem" train job.yaml -q -n 4 --threads 1 --run-dir $mode.again "${with[@]}"
    cmp -s "${mode}4/$last" "$mode.again/$last" ||
        fail "$mode: a wrong result the second time"
done
# Shuffled, a rank still has its own.
run 0 "$tandem" train job.yaml -q -n 4 --threads 1 --run-dir mixed --set data.partition=even \
    --set train.shuffle=uniform
run 0 "$tandem" export mixed -o mixed.safetensors
python3 counts.py even 4 mixed.safetensors 2>out || fail "shuffled ranges: $(tail -1 out)"

# Rules whose ranks are not in step have it too, and the example trains with all five.
run 0 "$tandem" train job.yaml -q -n 2 --sync async-peer --run-dir peer --set data.partition=even
run 0 "$tandem" train job.yaml -q -n 2 --sync aeasgd --run-dir centre --set data.partition=shuffled
run 0 "$tandem" compare "$source/examples/own-data.yaml" -n 4 --threads 1 --out side -q \
    --set data.count=640 --set train.epochs=1 --runs weighted.yaml \
    --vary data.partition=even,replacement,shuffled,features
for name in weighted partition={even,replacement,shuffled,features}; do
    grep -q "^$name  .*[0-9a-f]\{12\}$" out || fail "compare has no line of $name"
done
[ "$(wc -l <out)" = 6 ] || fail "compare: not a line for each value"
[ "$(sed 1d out | grep -o '[0-9a-f]\{12\}$' | sort -u | wc -l)" = 5 ] ||
    fail "partitions that end with the same weights"

# What cannot be is one line.
wrong() { run 2 "$tandem" train job.yaml -n 4 --run-dir x "$@"; }
wrong --set data.partition=weighted --set 'data.weights=[1, 2]'
has 'data.weights: 2 numbers for 4 ranks'
wrong --set data.partition=even --set 'data.weights=[1, 2, 3, 4]'
has 'data.weights: for data.partition weighted only'
wrong --set data.partition=odd
has 'data.partition: .*even'
[ ! -e x ] || fail "a folder was made"
