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

def counts(path, of):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    a, b = json.loads(data[8:8 + n])["linear1.weight"]["data_offsets"]
    w = struct.unpack(f"<{N}f", data[8 + n + a:8 + n + b])
    # Two rows of a rank in a step: the gradient of mean (w_i - 1)^2 over them is w_i - 1.
    seen = [x * of / LR for x in w]
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

def check_servers(mode, steps, got):
    """Of 16 steps with one batch of two rows each, workers do as many as their parts are large."""
    if mode == "replacement":
        assert sum(got) == 2 * steps, (mode, got)
        return
    sizes = (4, 8, 4, 16) if mode == "weighted" else (8, 8, 8, 8)
    want = []
    for size in sizes:  # each worker does its share of the steps, on its part from its beginning
        want += [1 if i < size * steps // 16 else 0 for i in range(size)]
    if mode == "shuffled":  # of worker w: w, w + 4, ...
        want = [want[i % RANKS * 8 + i // RANKS] for i in range(N)]
    if mode == "features":  # worker w has the first rows, and the columns of its range
        want = [1 if i < 8 * steps // 16 else 0 for i in range(N)]
    assert got == want, (mode, steps, got, want)

if sys.argv[1] == "make":
    make()
elif sys.argv[4:] == ["servers"]:
    check_servers(sys.argv[1], int(sys.argv[2]), counts(sys.argv[3], 1))
else:
    check(sys.argv[1], int(sys.argv[2]), counts(sys.argv[3], RANKS))
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

# Workers of a parameter server: each goes once through its own part in an epoch, however fast the
# others are; the first half of an epoch is half of every part, and a resumed run does the other.
servers=(--set train.batch=2 --set train.micro_batches=1 --set train.epochs=1
    --set train.steps=16 -n 4 --threads 1)
counted() { # MODE STEPS RUN
    run 0 "$tandem" export "$3" -o counted.safetensors
    python3 counts.py "$1" "$2" counted.safetensors servers 2>out || fail "$3: $(tail -1 out)"
}
for mode in even weighted replacement shuffled features; do
    with=(--set "data.partition=$mode")
    [ $mode != weighted ] || with=(--set @weighted.yaml)
    run 0 "$tandem" train job.yaml -q "${servers[@]}" --sync asgd --servers 1 --run-dir "ps-$mode" \
        "${with[@]}" --set train.steps=8 --faults 'slow rank=2 times=20'
    counted $mode 8 "ps-$mode"
    run 0 "$tandem" train job.yaml -q "${servers[@]}" --sync asgd --servers 1 \
        --run-dir "all-$mode" "${with[@]}"
    counted $mode 16 "all-$mode"
done
run 0 "$tandem" train job.yaml -q "${servers[@]}" --sync asgd --servers 1 --resume=ps-even \
    --set data.partition=even
counted even 16 ps-even
for rule in stale ssp downpour; do
    run 0 "$tandem" train job.yaml -q "${servers[@]}" --sync $rule --servers 1 \
        --run-dir ps-$rule --set data.partition=even --set train.epochs=3 --set train.steps=48
    [ "$(grep -c '"kind": "step"' ps-$rule/metrics.jsonl)" = 48 ] || fail "$rule: not 48 steps"
done
# A worker is killed: others do its batches, on samples of their own. A replay has the same bits.
run 0 "$tandem" train job.yaml -q "${servers[@]}" --sync ssp --servers 1 --run-dir ps-lost \
    --set data.partition=even --set train.epochs=3 --set train.steps=48 \
    --faults 'kill rank=2 at=step:22' # of the second epoch, when all are there
[ "$(grep -c '"kind": "step"' ps-lost/metrics.jsonl)" = 48 ] || fail "a worker lost: not 48 steps"
run 0 "$tandem" train job.yaml -q "${servers[@]}" --servers 1 --run-dir again --replay all-even \
    --sync asgd --set data.partition=even
cmp -s {all-even,again}/checkpoints/step-00000016/model.safetensors ||
    fail "a replay has other bits"
sed 's/{rule: ma, tau: 4}/asgd/' job.yaml >served.yaml
run 0 "$tandem" compare served.yaml -n 3 --threads 1 --out ps-side -q "${servers[@]:0:8}" \
    --set parallel.servers=1 --vary data.partition=even,shuffled
[ "$(wc -l <out)" = 3 ] || fail "compare with servers: not a line for each value"

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
wrong --sync sync --servers 1 --set data.partition=even
has 'data.partition: not with the sync rule sync, whose ranks share one order of samples'
wrong --sync asgd --servers 1 --set data.partition=weighted --set 'data.weights=[1, 2]'
has 'data.weights: 2 numbers for 4 workers'
wrong --sync asgd --servers 1 --set data.partition=weighted --set 'data.weights=[0, 0, 0, 0]'
has 'data.weights: the numbers add up to 0'
for how in "--sync asgd --servers 1" "--sync ma"; do
    # shellcheck disable=SC2086 # words
    run 2 "$tandem" train job.yaml -n 2:4 $how --run-dir x --set data.partition=weighted \
        --set 'data.weights=[1, 3]'
    has 'data.partition: weighted not with elastic ranks'
    [ "$(wc -l <out)" = 1 ] || fail "$how: more than a line"
done
wrong --sync asgd --servers 1 --parallel data=2 --set data.partition=even
has 'data.partition: not with workers of several ranks along data'
[ ! -e x ] || fail "a folder was made"
