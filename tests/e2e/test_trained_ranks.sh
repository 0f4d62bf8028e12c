#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A trained model on several ranks, each of which has a part of it: `tandem predict` and `tandem
# eval` with -n write the bytes of one rank, with stages, pieces of layers, replicas and even
# shards, from runs of any arrangement, also with short last batches; no rank holds the whole model;
# bad input, which starts nobody.
. "$(dirname "$0")/lib.sh"

cat >cnn.yaml <<'JOB'
name: cnn
model:
  - {conv2d: 8, kernel: 3, act: relu}
  - batch_norm
  - flatten
  - dropout: 0.2
  - {linear: 32, act: relu}
  - {linear: 16, act: relu}
  - linear
data: {source: digits, count: 200, split: {valid: 0.1, test: 0.335}}
metrics: [accuracy, f1]
train: {batch: 32, epochs: 1, micro_batches: 8, optimizer: lamb}
JOB
for i in $(seq 200); do echo "line $i of a text, and $((i * 7 % 13)) more"; done >text.txt
cat >gpt.yaml <<'JOB'
name: gpt
model: {name: gpt2, layers: 4, heads: 4, width: 32}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.2}}
train: {batch: 16, steps: 3, micro_batches: 4, optimizer: adamw}
parallel: {tensor_pieces: 4}
JOB

# same_as RUN RANKS ARGS...: predictions and metrics as those of one rank in RUN.want
says() { # RUN [ARGS]: without what differs from call to call
    run 0 "$tandem" eval "$@" --json --scores
    sed 's/"seconds": [^,]*, //' out
}
same_as() {
    run 0 "$tandem" predict "$1" -o got.npy -n "${@:2}"
    cmp "$1.npy" got.npy || fail "predict $*: other bytes than one rank's"
    says "$1" -n "${@:2}" | cmp "$1.eval" - || fail "eval $*: other numbers than one rank's"
}

run 0 "$tandem" train cnn.yaml -q --run-dir cnn
run 0 "$tandem" train gpt.yaml -q --run-dir gpt
run 0 "$tandem" train gpt.yaml -q --run-dir mesh -n 4 --parallel pipeline=2,tensor=2
for r in cnn gpt mesh; do
    run 0 "$tandem" predict $r -o $r.npy -n 1 --parallel data=1
    says $r -n 1 --parallel data=1 >$r.eval
done
cmp gpt.npy mesh.npy || fail "a run of four ranks has other weights"

same_as cnn 4 --parallel pipeline=4
same_as cnn 4 --parallel data=2,pipeline=2
same_as cnn 3 --set parallel.zero=3
same_as cnn 2 --parallel pipeline=2 --set train.backend=far
same_as gpt 4 --parallel pipeline=4
same_as gpt 4 --parallel tensor=4
same_as gpt 4 --parallel pipeline=2,tensor=2 --set parallel.transport=tcp
same_as mesh 4 # as it was trained
same_as mesh 2 --parallel pipeline=2 --set parallel.schedule=zb-v
run 0 "$tandem" predict cnn --part train -o one.csv
run 0 "$tandem" predict cnn --part train -o two.csv -n 2 --parallel pipeline=2
cmp one.csv two.csv || fail "the train part"
run 0 "$tandem" launch -n 2 -- "$tandem" predict cnn --part train -o three.csv \
    --parallel pipeline=2
cmp one.csv three.csv || fail "ranks that others have started"

# A rank holds its part, and of the others' a layer at a time.
cat >large.yaml <<'JOB'
name: large
model: {name: gpt2, layers: 8, heads: 4, width: 320}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.05}}
train: {batch: 8, steps: 1, micro_batches: 8, optimizer: sgd}
parallel: {threads: 1}
JOB
run 0 "$tandem" train large.yaml -q --run-dir large
peak() { # COMMAND...: the largest resident set of any of its processes, in kB
    python3 - "$@" <<'PY'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
PY
}
says large >large.eval
says large -n 4 --parallel pipeline=4 | cmp large.eval - || fail "eval of a large model"
whole=$(peak "$tandem" eval large) || fail "no peak of one rank"
quarter=$(peak "$tandem" eval large -n 4 --parallel pipeline=4) || fail "no peak of four"
echo "peak memory: $whole kB on one rank, $quarter on the largest of four stages"
[ $((100 * quarter)) -le $((65 * whole)) ] || fail "a stage holds more than 65 % of one rank"

# Said once, by nobody that was started.
wrong() { # TEXT ARGS...
    run 2 "$tandem" "${@:2}"
    has "$1"
    [ "$(wc -l <out)" = 1 ] || fail "${*:2}: more than one line"
}
wrong 'use -n 4, or sizes whose product' predict cnn -o no.npy --parallel pipeline=4
wrong 'use -n 4, or sizes whose product' eval cnn -n 3 --parallel pipeline=2
wrong 'would have the whole model each' eval cnn -n 2
wrong 'cannot be cut into 40 chunks\|can be cut into' eval cnn -n 40 --parallel pipeline=40
wrong 'axes are data, pipeline' eval cnn -n 2 --parallel pipelin=2
wrong 'not for a trained model' eval cnn -n 2 --parallel auto
wrong 'a fixed number of ranks' eval cnn -n 2:4 --parallel pipeline=2
wrong 'the servers of the run compute' predict cnn --live -n 2 --parallel pipeline=2 -o no.npy
wrong 'step-00000003' eval cnn -n 2 --parallel pipeline=2 --checkpoint step-3
wrong 'ending in' predict cnn -n 2 --parallel pipeline=2 -o no.xls
[ ! -e no.npy ] || fail "a refused prediction left a file"

# What only a rank can find out, rank 0 says.
cp -r cnn damaged
for f in damaged/checkpoints/step-*/model.safetensors; do printf x | dd of="$f" conv=notrunc bs=1 \
    seek=2000 2>/dev/null; done
run 2 "$tandem" eval damaged -n 2 --parallel pipeline=2 --checkpoint best
has 'model.safetensors'
dead || fail "processes are left"
echo "test_trained_ranks: passed"
