#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# model.from: a run begins with the weights of a file or of another run; a head of another size is
# new; one rank and two begin alike. And a finished run that is asked for more epochs goes on.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'YAML'
name: digits
model: [flatten, {linear: 32, act: relu}, linear]
data: {source: digits, count: 600}
train: {batch: 32, epochs: 2, micro_batches: 4, optimizer: {name: adamw, lr: 0.005}}
log: {tensorboard: false, report: false}
YAML
run 0 "$tandem" train job.yaml --run-dir first
run 0 "$tandem" export first -o first.safetensors
accuracy() { grep -o 'accuracy  *[0-9.]*' out | tail -1 | grep -o '[0-9.]*$'; }

# The first loss of a run that begins where another ended is that one's last, about.
loss() { grep -o '"loss": [0-9.e-]*' "$1/metrics.jsonl" | sed -n "${2}p" | cut -d ' ' -f 2; }
run 0 "$tandem" train job.yaml --run-dir file --set model.from=first.safetensors
want=$(digest)
python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(not b < 0.7 * a)' \
    "$(loss first 1)" "$(loss file 1)" || fail "begins at $(loss file 1), anew at $(loss first 1)"
run 0 "$tandem" train job.yaml --run-dir run --set model.from=first
same "from the run instead of the file"
run 0 "$tandem" train job.yaml --run-dir two --set model.from=first -n 2
same "two ranks"
# Elastic ranks too: whoever comes later, or begins anew before there is a checkpoint.
while read -r ranks faults; do
    run 0 "$tandem" train job.yaml --run-dir "elastic$ranks" --set model.from=first --elastic \
        --lease 10s -n "${ranks%.*}" --faults "$faults"
    same "elastic: $faults"
done <<'CASES'
2.0 slow rank=0 for=1ms at=step:1
3.1 kill rank=0 at=step:3
2.2 kill rank=1 at=step:2; kill rank=0 at=step:5
2.3 kill rank=0 at=step:4; kill rank=1 at=step:4
CASES
run 2 "$tandem" train job.yaml --run-dir none --set model.from=nosuch --elastic -n 2
has 'model.from: nosuch: No such file'
# Resumed, it does not begin again.
run 0 "$tandem" train job.yaml --run-dir half --set model.from=first --set train.steps=9
run 0 "$tandem" train job.yaml --resume=half --set model.from=first
same "resumed"

# A new head; a name in the job file starts at that file.
mkdir jobs
sed -e 's/linear\]/{linear: 16, act: relu}, linear]/' \
    -e 's/^model: \(.*\)/model: {layers: \1, from: ..\/first}/' job.yaml >jobs/head.yaml
run 0 "$tandem" train jobs/head.yaml --run-dir head
has "model.from: [0-9]* tensors of .*first.* taken; [0-9]* are new, as 'linear"

# Frozen layers stay as they were, on two ranks too; a fresh layer does not begin where it ended.
tensor() { # FILE NAME: a digest of its bytes
    python3 - "$@" <<'PY'
import hashlib, json, sys
data = open(sys.argv[1], 'rb').read()
n = int.from_bytes(data[:8], 'little')
a, b = json.loads(data[8:8 + n])[sys.argv[2]]['data_offsets']
print(hashlib.sha256(data[8 + n:][a:b]).hexdigest())
PY
}
weights() { run 0 "$tandem" export "$1" -o "$1.safetensors"; }
for f in 'linear1' 'linear1.weight' '["*1.weight", "*1.bias"]'; do
    rm -rf cold
    run 0 "$tandem" train job.yaml --run-dir cold --set model.from=first --set "model.freeze=$f"
    weights cold
    moved() { [ "$(tensor cold.safetensors "$1")" != "$(tensor first.safetensors "$1")" ]; }
    ! moved linear1.weight || fail "freeze $f: linear1.weight moved"
    moved linear2.weight || fail "freeze $f: linear2.weight did not move"
done
frozen="--set model.from=first --set model.freeze=linear1"
# shellcheck disable=SC2086 # options
run 0 "$tandem" train job.yaml --run-dir cold1 $frozen -n 1
want=$(digest)
# shellcheck disable=SC2086
run 0 "$tandem" train job.yaml --run-dir cold2 $frozen -n 2
same "frozen, two ranks"
# shellcheck disable=SC2086
run 0 "$tandem" train job.yaml --run-dir cold3 $frozen --set train.steps=9
# shellcheck disable=SC2086
run 0 "$tandem" train job.yaml --resume=cold3 $frozen
same "frozen, resumed"
run 0 "$tandem" eval cold2
run 0 "$tandem" train job.yaml --run-dir fresh --set model.from=first --set model.fresh=linear2
has "2 tensors of .*first.* taken; 2 are new, as 'linear2"
# Nor do rules that take means of weights move them: that of three equal numbers may be another one.
for rule in ma diloco dpsgd; do
    rm -rf cold
    # shellcheck disable=SC2086 # options
    run 0 "$tandem" train job.yaml --run-dir cold $frozen -n 3 --sync $rule --threads 1
    weights cold
    ! moved linear1.weight || fail "$rule: a wrong result: linear1.weight moved"
    moved linear2.weight || fail "$rule: linear2.weight did not move"
done
run 2 "$tandem" train job.yaml --run-dir x --set model.freeze=conv9
has "model.freeze: no weight matches 'conv9'; there is linear"
run 2 "$tandem" train job.yaml --run-dir x --set 'model.freeze=linear*'
has 'model.freeze: nothing is left to train'
run 2 "$tandem" train job.yaml --run-dir x --set model.fresh=linear2
has 'model.fresh: needs model.from'

# Fine-tuning on other data than the weights came from: 40 rows of another table, with classes
# that depend on what the first table taught (the quadrant of a point, in two of twelve columns).
# Means, deviations and class names are those of the new data; the rest of the model stays.
points() { # SEED ROWS SHIFT CLASSES
    awk -v seed="$1" -v n="$2" -v shift="$3" -v classes="$4" 'BEGIN { srand(seed)
        print "a,b,c,d,e,f,g,h,i,j,k,l,kind"; split(classes, name)
        for (i = 0; i < n; i++) { a = 4 * rand() - 2; b = 4 * rand() - 2
            printf "%.4f,%.4f", a + shift, b + shift
            for (k = 0; k < 10; k++) printf ",%.4f", 4 * rand() - 2 + shift
            print "," name[1 + (a > 0) + (b > 0 ? 2 : 0)] } }'
}
points 1 3000 0 'sw se nw ne' >quadrants.csv
points 2 40 5 'same other other same' >few.csv
points 3 400 5 'same other other same' >many.csv
cat >quadrants.yaml <<'YAML'
name: quadrants
model: [{linear: 32, act: relu}, {linear: 8, act: relu}, linear]
data: {source: csv, train: quadrants.csv, label: kind, target: class, maps: [normalize]}
train: {batch: 32, epochs: 8, micro_batches: 4, optimizer: {name: adamw, lr: 0.005}}
log: {tensorboard: false, report: false}
YAML
sed -e 's/quadrants/few/' -e 's/batch: 32, epochs: 8/batch: 8, epochs: 60/' \
    quadrants.yaml >few.yaml
run 0 "$tandem" train quadrants.yaml --run-dir quadrants
run 0 "$tandem" train few.yaml --run-dir tuned --set model.from=quadrants \
    --set 'model.freeze=["linear1*", "linear2*"]'
has "4 tensors of .*quadrants.* taken; 2 are new, as 'linear3"
weights quadrants
weights tuned
first_layer() { tensor "$1.safetensors" linear1.weight; }
[ "$(first_layer tuned)" = "$(first_layer quadrants)" ] ||
    fail "fine-tuning moved frozen weights"
run 0 "$tandem" train few.yaml --run-dir scratch
run 0 "$tandem" eval tuned --input many.csv
tuned=$(accuracy)
run 0 "$tandem" eval scratch --input many.csv
awk "BEGIN { exit !($tuned > 85 && $tuned > $(accuracy) + 10) }" ||
    fail "fine-tuned $tuned %, from scratch $(accuracy) %"
run 0 "$tandem" predict tuned --input many.csv -o tuned.csv
[ "$(sed 1d tuned.csv | cut -d , -f 2 | sort -u | xargs)" = "other same" ] ||
    fail "$(head -3 tuned.csv)"

# Other names: the first layer of the file is called body here.
sed -e 's/{linear: 32, /{linear: 32, name: body, /' \
    -e 's/^model: \(.*\)/model: {layers: \1, from: first, rename: {linear1.: body., NEXT}}/' \
    -e 's/NEXT/linear2.: linear1./' job.yaml >renamed.yaml
run 0 "$tandem" train renamed.yaml --run-dir renamed
! grep -q 'are new' out || fail "renamed tensors are not found"

# What cannot be.
run 2 "$tandem" train job.yaml --run-dir x --set model.from=nosuch
has 'model.from: nosuch: No such file'
run 2 "$tandem" train job.yaml --run-dir x --set model.from=job.yaml
has 'job.yaml: not a safetensors file, or damaged'
[ ! -e x ] || fail "a run that could not begin leaves its directory"
sed -e 's/linear: 32/linear: 7/; s/flatten, /flatten, {linear: 5}, /' \
    -e 's/, linear\]/, {linear: 9}, linear]/' job.yaml >other.yaml
sed -i 's/{source: digits, count: 600}/{source: spirals, count: 100}/; s/flatten, //' other.yaml
run 2 "$tandem" train other.yaml --run-dir x --set model.from=first
has 'no tensor has the name and shape of a weight of this model'
run 2 "$tandem" train job.yaml --run-dir x -n 2 --set model.from=first --set parallel.zero=3
has 'model.from: not with parallel.zero: 3'

# What elastic ranks cannot have is said once, before they are started.
run 2 "$tandem" train job.yaml --run-dir x -n 1:2 --set model.from=first --set parallel.zero=1
has 'model.from: not with elastic ranks and parallel.zero'
for set in "train.batch_per_rank=8 train.batch_per_rank" \
    "train.optimizer={name: sgd, lr: 0.1, scale_lr: true} train.optimizer.scale_lr"; do
    run 2 "$tandem" train job.yaml --run-dir x -n 1:2 --set "${set% *}"
    has "^tandem train: ${set##* }: not with elastic ranks"
    [ "$(wc -l <out)" = 1 ] || fail "$set: more than a line"
    [ ! -e x ] || fail "$set: a folder was made"
done

# Longer training: the bits of a run of that length.
run 0 "$tandem" train job.yaml --run-dir long --set train.epochs=4
want=$(digest)
run 0 "$tandem" train job.yaml --resume=first --set train.epochs=4
same "two epochs more"
