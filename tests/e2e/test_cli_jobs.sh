#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wrong job files through the program: `check` and `train` each answer with exactly one line on
# standard error that names what is wrong, and status 2; no run is made.
. "$(dirname "$0")/lib.sh"
go_on=1
count=0

# try PATTERN: the job on standard input is refused with one line that has the pattern.
try() {
    cat >job.yaml
    local command status
    count=$((count + 1))
    for command in check train; do
        limited "$tandem" $command job.yaml >out 2>err
        status=$?
        [ $status -eq 2 ] || fail "$command, '$1': status $status: $(cat err)"
        [ "$(wc -l <err)" -eq 1 ] || fail "$command, '$1': not one line: $(cat err)"
        grep -q -- "$1" err || fail "$command: expected '$1': $(cat err)"
        [ ! -s out ] || fail "$command, '$1': standard output: $(head -3 out)"
    done
}
# change SED PATTERN: the good job, changed by a sed command.
change() { try "$2" < <(sed "$1" good.yaml); }

cat >good.yaml <<'END'
name: good
model:
  - flatten
  - {linear: 16, act: relu}
  - linear
data:
  source: digits
  count: 100
train:
  batch: 20
  steps: 2
  optimizer: {name: sgd, lr: 0.1}
END
"$tandem" check -q good.yaml || fail "the good job is refused"

change 's/batch: 20/batch: -3/' 'job.yaml:10:.*train.batch.*at least 1.*-3'
change 's/batch: 20/batch: many/' 'train.batch.*many'
change 's/batch: 20/batch: 2.5/' 'train.batch.*2.5'
change 's/batch: 20/batch: 64 kB/' 'train.batch.*64 kB'
change 's/batch: 20/batsh: 20/' 'did you mean train.batch'
change 's/optimizer:/optimzer:/' 'did you mean train.optimizer'
change 's/name: sgd/name: sgdd/' 'sgdd'
change 's/lr: 0.1/lr: fast/' 'lr.*fast'
change 's/source: digits/source: digit/' 'digit'
change 's/source: digits/source: idx\n  dir: nosuchdir/; /count/d' 'nosuchdir'
change 's/source: digits/source: csv\n  train: nosuch.csv\n  label: y/; /count/d' 'nosuch.csv'
change 's/linear: 16/lineer: 16/' 'did you mean'
change 's/linear: 16/linear: 16, name: a\/b/' "job.yaml:4:.*layers.1.name.*without '/'"
change 's/linear: 16/linear: 16, name: "a\\nb"/' 'layers.1.name'
change 's/linear: 16/linear: 16, name: ""/' 'layers.1.name'
change 's/^train:/metrics: [accuracy, accuracy]\ntrain:/' 'metrics: accuracy is given twice'
change 's/linear: 16/linear: 0/' 'linear.*0\|out'
change 's/linear: 16/linear: 1000000000000/' 'job.yaml:4'
change 's/- flatten/- {conv2d: 4, kernel: 99}/' 'job.yaml:3'
change 's/- flatten/- {lstm: 8}/' 'job.yaml:'
change 's/  - linear$/  - {linear: 3}/' '10\|3'
change '/^model/,/linear$/d' 'model'
change '/^data/,/count/d' 'data'
change 's/act: relu/act: rely/' 'relu'
change 's/steps: 2/steps: 0/' 'train.steps'
change 's/^train:/training:/' 'did you mean train'
change 's/batch: 20/batch: 20\n  batch: 30/' 'job.yaml:11'
change 's/  batch: 20/ \tbatch: 20/' 'job.yaml:'
change 's/steps: 2/steps: 2\n  precision: f8/' 'precision.*f8'
change 's/steps: 2/steps: 2\n  micro_batches: 7/' 'micro_batches'
change 's/steps: 2/steps: 2\n  loss: mse/' 'train.loss'
change 's/name: good/name: ..\/..\/etc/' 'name'
change 's/name: good/name: [1, 2]/' 'name'
try 'job.yaml' <<<''
try 'job.yaml' <<<'[1, 2, 3'
try 'job.yaml' <<<'just text'
try 'job.yaml' < <(head -c 4096 /dev/zero)
try 'job.yaml' < <(printf 'name: \xff\xfe\n')
try 'job.yaml' < <(printf 'a: &a [x]\nb: *a\n')
try 'job.yaml' < <(for _ in $(seq 2000); do printf '['; done)
change 's/count: 100/count: 1e30/' 'data.count'
change 's/count: 100/count: 100\n  split: {valid: 0.9, test: 0.9}/' 'split'

rm -f job.yaml
ln -s job.yaml job.yaml
"$tandem" check job.yaml >out 2>err
[ $? -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] || fail "a link to itself: $(cat err)"
rm -f job.yaml
[ ! -e runs ] || fail "a wrong job made a run: $(ls runs)"
echo "test_cli_jobs: $count wrong jobs"
exit $bad
