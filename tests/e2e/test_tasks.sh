#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# What newcomers come for, each from an empty folder: a table to classify, a text to classify, a
# time series to forecast, a program in C that trains its own graph with ranks, predictions
# elsewhere. The others are tests of their own: a folder of images (test_images), weights to begin
# with and a longer run (test_warm_start), a GPT that generates (test_generate), PyTorch and ONNX
# (test_export, test_export_onnx, test_export_torch).
. "$(dirname "$0")/lib.sh"
task() { mkdir "$dir/$1" && cd "$dir/$1" || fail "no folder for $1"; }

# --- My CSV to predictions: init, train, predict new rows, eval ----------------------------------
task table
# rows FIRST LAST: plans by minutes, with gaps, a category and a label
rows() {
    awk -v from="$1" -v to="$2" 'BEGIN { srand(11); split("north south east west", region)
        for (i = 0; i < to; i++) { m = int(600 * rand()); r = region[1 + int(4 * rand())]
            gap = rand()
            if (i >= from) printf "%d,%s,%s,%s\n", 1000 + i, gap < 0.03 ? "" : m, r,
                m < 120 ? "basic" : m < 350 ? "plus" : "pro" } }'
}
{ echo 'id,minutes,region,plan'; rows 0 1500; } >customers.csv
run 0 "$tandem" init customers.csv
grep -q 'label: plan' job.yaml || fail "another label: $(cat job.yaml)"
run 0 "$tandem" check job.yaml -q
run 0 "$tandem" train job.yaml --set train.epochs=20
grep -Eq 'test accuracy  (100.00|9[0-9]\...) %' out || fail "it does not learn"
# New rows: without the label, one with an unseen region, one without minutes, columns as they come.
cat >new.csv <<'END'
region,minutes,id
south,20,1
west,230,2
atlantis,590,3
north,,4
END
run 0 "$tandem" predict job.yaml --input new.csv -o said.csv
has "new.csv:4: column 'region' is 'atlantis'.*read as \"other\""
[ "$(wc -l <said.csv)" = 5 ] || fail "not a line for each row: $(cat said.csv)"
[ "$(sed -n 2,4p said.csv | cut -d , -f 2 | xargs)" = "basic plus pro" ] || fail "$(cat said.csv)"
sed 1d said.csv | cut -d , -f 3- | awk -F , '{ s = 0; for (i = 1; i <= NF; i++) s += $i
    if (NF != 3 || s < 0.999 || s > 1.001) exit 1 }' || fail "no probabilities: $(cat said.csv)"
# The label's column may be there, blank, unknown or not: nobody asks it for a prediction.
awk -F , -v OFS=, 'NR == 1 { print $0, "plan" }
    NR > 1 { print $0, NR == 2 ? "" : NR == 3 ? "gold" : NR == 4 ? "7" : "basic" }' \
    new.csv >blank.csv
run 0 "$tandem" predict job.yaml --input blank.csv -o blank-said.csv
cmp -s said.csv blank-said.csv || fail "another prediction with blank labels: $(cat blank-said.csv)"
run 2 "$tandem" eval job.yaml --input blank.csv
has "column 'plan' is '', expected a class that the model was trained on"
# Rows with labels that came later measure the run; it is right in most of them, line by line too.
{ echo 'id,minutes,region,plan'; rows 1500 1700; } >later.csv
run 0 "$tandem" eval job.yaml --input later.csv --scores
has 'plus'
accuracy=$(grep -o 'accuracy *[0-9.]*' out | head -n 1 | grep -o '[0-9.]*$')
run 0 "$tandem" predict job.yaml --input later.csv -o later-said.csv
paste -d , <(cut -d , -f 4 later.csv) <(cut -d , -f 2 later-said.csv) | sed 1d |
    awk -F , -v told="$accuracy" '{ right += $1 == $2; n++ }
        END { share = 100 * right / n; exit !(n == 200 && share > 90 && share - told < 0.01 &&
            told - share < 0.01) }' || fail "eval says $accuracy %, predictions say another"
# Its newest run is exported by the job's name too, as it is evaluated and predicts.
run 0 "$tandem" export job.yaml -o by-job.npz
run 0 "$tandem" export runs/customers-0001 -o by-run.npz
cmp -s by-job.npz by-run.npz || fail "the job's newest run is another"
run 2 "$tandem" export nosuch.yaml -o no.npz
# A longer run goes on where it was, optimizer and place in the data included; init's learning rate
# ends with the run, which one warning says. The same bits on ranks, elastic ones, and after a kill.
run 0 "$tandem" train job.yaml --set train.epochs=5 --run-dir five
run 0 "$tandem" train job.yaml --set train.epochs=2 --run-dir two
rates() { grep '"kind": "step"' "$1/metrics.jsonl" | grep -o '"lr": [0-9.e-]*'; }
steps=$(rates two | wc -l)
want=
longer() { # NAME OPTIONS...
    local to=$1
    cp -r two "$to"
    run 0 "$tandem" train job.yaml --resume="$to" --set train.epochs=5 "${@:2}"
    [ "$(grep -c 'ends elsewhere\|another job' out)" = 1 ] || fail "$to: not one line: $(cat out)"
    has 'now ends elsewhere: train.epochs (2, now 5); the weights differ from those of one run'
    [ -n "$want" ] || want=$(digest)
    same "longer: $to"
    cmp -s <(rates five | sed "1,${steps}d") <(rates "$to" | sed "1,${steps}d") ||
        fail "$to: rates are not those of five epochs, from the step after two on"
}
longer one
longer ranks -n 2
longer elastic -n 2:2
longer died -n 2:2 --faults 'kill rank=0 at=step:70'
cp -r two killed
"$tandem" train job.yaml --resume=killed --set train.epochs=5 -n 2 \
    --faults 'kill rank=1 at=step:45' >out 2>&1 && fail "nobody was killed: $(cat out)"
run 0 "$tandem" train job.yaml --resume=killed --set train.epochs=5
same "longer, and killed before its first checkpoint"
grep -q ' warn ' out && fail "a second warning: $(cat out)"
run 0 "$tandem" train job.yaml --resume=one --set train.epochs=5
has 'one is already finished'
run 2 "$tandem" train job.yaml --resume=one --set train.epochs=4
has 'differs in train.epochs (5, now 4), and the run has done more: step [0-9]*, epoch 5'
run 2 "$tandem" train job.yaml --resume=one --set train.epochs=9 --set train.batch=32
has 'cannot resume one: the job differs in train.batch'

# --- Text classification: sentences with a label, new sentences without ---------------------------
task text
awk 'BEGIN { srand(5); split("great lovely fine wonderful excellent", good)
    split("awful broken poor terrible useless", bad); split("phone lamp chair book kettle", thing)
    split("today late soon again twice", when)
    for (i = 0; i < 700; i++) { k = rand() < 0.5; w = 1 + int(5 * rand())
        printf "{\"review\": \"this %s number %d is %s and came %s\", \"mood\": \"%s\"}\n",
            thing[1 + int(5 * rand())], i, k ? good[w] : bad[w], when[1 + int(5 * rand())],
            k ? "happy" : "angry" } }' >reviews.jsonl
cat >new.jsonl <<'END'
{"review": "this lamp number 17 is wonderful and came late"}
{"review": "this book number 3 is useless and came soon"}
END
run 0 "$tandem" init reviews.jsonl
grep -q '{text: review}' job.yaml || fail "the text is not a feature: $(cat job.yaml)"
run 0 "$tandem" train job.yaml --set train.epochs=8
grep -Eq 'test accuracy  (100.00|9[5-9]\...) %' out || fail "it does not learn"
run 0 "$tandem" predict runs/reviews-0001 --input new.jsonl -o said.csv
[ "$(sed 1d said.csv | cut -d , -f 2 | xargs)" = "happy angry" ] || fail "$(cat said.csv)"

# --- Predictions on another machine: the run alone, in another folder, without the data -----------
task elsewhere
mv ../text/runs/reviews-0001 model
rm ../text/reviews.jsonl
run 0 "$tandem" predict model --input ../text/new.jsonl -o said.csv
cmp -s said.csv ../text/said.csv || fail "elsewhere other predictions"

# --- A time series: the load of the next hour from the last twelve --------------------------------
task series
awk 'BEGIN { srand(7); print "hour,load"; for (i = 0; i < 600; i++)
    printf "%d,%.3f\n", i % 24, 50 + 20 * sin(i * 6.2831853 / 24) + rand() - 0.5 }' >load.csv
cat >job.yaml <<'YAML'
name: load
model: [flatten, {linear: 32, act: relu}, linear]
loss: mse
metrics: [mae]
data:
  source: csv
  train: load.csv
  label: load
  target: number
  window: 12
  features: [{numeric: load}]
  maps: [normalize, {normalize: {field: y}}]
  split: {valid: 0.1, test: 0.1}
train: {batch: 32, epochs: 30, optimizer: {name: adamw, lr: 0.01}}
YAML
run 0 "$tandem" train job.yaml
mae=$(sed -n 's/ *test mae *\([0-9.]*\).*/\1/p' out)
awk "BEGIN { exit !($mae < 1.5) }" || fail "off by $mae of 20"
run 0 "$tandem" predict runs/load-0001 --input load.csv -o next.csv
# The last window is the forecast of the hour after the file: 600 is a multiple of 24.
awk -F , 'END { v = $NF; exit !(v > 46 && v < 54) }' next.csv ||
    fail "forecast: $(tail -1 next.csv)"

# And by init alone, from hours and numbers: the model reads the numbers before.
awk -F , 'NR == 1 { print "time,load" }
    NR > 1 { n = NR - 2; printf "2024-01-%02d %02d:00,%s\n", 1 + n / 24, n % 24, $2 }' load.csv \
    >hours.csv
run 0 "$tandem" init hours.csv -o hours.yaml
grep -q 'window: 24' hours.yaml && grep -q 'left out: time (dates or times' hours.yaml ||
    fail "no time series: $(cat hours.yaml)"
run 0 "$tandem" train hours.yaml
mae=$(sed -n 's/ *test mae *\([0-9.]*\).*/\1/p' out)
awk "BEGIN { exit !($mae < 1.5) }" || fail "hours: off by $mae of 20"
run 0 "$tandem" predict runs/hours-0001 --input hours.csv -o next.csv
awk -F , 'END { v = $NF; exit !(v > 46 && v < 54) }' next.csv || fail "hours: $(tail -1 next.csv)"
head -n 100 hours.csv >few.csv
run 2 "$tandem" init few.csv -o few.yaml
has "no column says anything about 'load'"
# Rows without a number are left out of training; those of new rows want no label, the training file
# itself neither.
awk -F , -v OFS=, 'NR > 1 && NR % 40 == 9 { $2 = "" } { print }' load.csv >gaps.csv
sed -e 's/load.csv/gaps.csv/; s/numeric: load/numeric: hour/; s/epochs: 30/epochs: 2/' \
    -e 's/^  target: number/&\n  missing: drop/' job.yaml >gaps.yaml
run 0 "$tandem" train gaps.yaml --run-dir gaps
run 0 "$tandem" predict gaps --input gaps.csv -o gaps-said.csv
[ "$(wc -l <gaps-said.csv)" -gt 500 ] || fail "predictions of gaps.csv: $(wc -l <gaps-said.csv)"
run 0 "$tandem" eval gaps --input gaps.csv # of the rows that have one
# Folds with windows so wide that their gaps leave no training window, measured or not.
head -n 61 load.csv >short.csv
for fit in train all; do
    run 2 "$tandem" check job.yaml --set data.train=short.csv --set data.window=25 \
        --set 'data.split={folds: 3, fold: 1, test: 0.1}' --set data.missing=mean \
        --set data.fit=$fit
    has 'part train has no samples'
done

# --- A C program that trains its own graph on two ranks, with the installed library ---------------
task c
run 0 cmake --install "$build" --prefix "$PWD/tree"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$PWD/tree" -name tandem.pc)")
cp "$source/examples/07_fit.c" mine.c
# shellcheck disable=SC2046
run 0 cc -O1 mine.c -o mine $(pkg-config --cflags --libs tandem) -lm -lpthread
LD_LIBRARY_PATH=$(dirname "$(find "$PWD/tree" -name libtandem.so)") run 0 ./mine
grep -q 'accuracy 9[0-9]\|accuracy 100' out || fail "it does not learn"
echo "test_tasks: ok"
