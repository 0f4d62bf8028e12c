#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# report.html is there from the first step on, stays after kill -9, says why a run failed, and shows
# ranks that came and went, the confusion matrix or predicted against true values, and the worst
# samples; compare.html and the page of find-lr: all in a real browser (pages.py). TD_PICTURES names
# a folder for pictures of all pages.
. "$(dirname "$0")/lib.sh"
export PYTHONDONTWRITEBYTECODE=1

cat >"$mark" <<'JOB'
name: digits-with-a-rather-long-name-that-has-to-be-broken-somewhere
model: [flatten, {linear: 32, act: relu}, linear]
data: {source: digits, count: 1200, split: {valid: 0.2}}
train: {batch: 32, epochs: 4, micro_batches: 4, optimizer: {name: adam, lr: 0.005},
  eval: {every: 30}}
checkpoint: {every: 20}
JOB

# Live, and kept when all is killed at once.
killed() {
    rm -rf killed
    "$tandem" train "$mark" -q --run-dir killed --set train.epochs=4000 \
        --faults "$(slowly 0)" >first 2>&1 &
    pid=$!
    while_it_runs grep -qs 'class="state live">running' killed/report.html || return 1
    while_it_runs grep -Eqs 'step [1-9][0-9]* of [0-9]*, 32 samples' killed/report.html || return 1
    kill -KILL "$pid" 2>/dev/null
}
patiently killed
wait "$pid" 2>/dev/null
grep -q '</html>' killed/report.html || fail "a torn report"
grep -q 'id="live" data-written=' killed/report.html || fail "it does not say when it was written"

# A loss that is not finite.
run 1 "$tandem" train "$mark" -q --run-dir nan --set train.optimizer.lr=1e30
why=$(cat nan/failed.txt)
grep -qF "${why:0:40}" nan/report.html || fail "the report does not say why: $why"
! grep -q 'id="live"' nan/report.html || fail "a run that has failed is said to go on"
# The same run, resumed as it should have been.
run 0 "$tandem" train "$mark" -q --run-dir fine
! grep -q 'class="why"\|id="live"' fine/report.html || fail "a finished run is said to go on"

# Elastic: one of two ranks is killed.
run 0 "$tandem" train "$mark" -q -n 2:2 -j 1 --run-dir elastic --set train.epochs=6 \
    --faults "$(slowly 0 1) kill rank=1 at=step:12; kill rank=0 at=step:40"
[ "$(grep -c '"kind": "lost"' elastic/ranks.jsonl)" = 2 ] || fail "$(cat elastic/ranks.jsonl)"

# Numbers.
awk 'BEGIN { srand(3); print "area,rooms,price"; for (i = 0; i < 300; i++) { a = 30 + 120 * rand();
    r = int(1 + 5 * rand()); print a "," r "," 2000 * a + 9000 * r + 8000 * (rand() - 0.5) }
}' >t.csv
run 0 "$tandem" init t.csv --output prices.yaml
run 0 "$tandem" train prices.yaml -q --run-dir prices --set train.epochs=5

run 0 "$tandem" compare "$mark" --vary train.optimizer.lr=0.001,0.01 --out two --set train.epochs=1
run 0 "$tandem" find-lr "$mark" --steps 40 -j 1 -o lr.html

command -v chromium >/dev/null || { echo "skipped: no chromium (package chromium)"; exit 77; }
mkdir pages
text() { printf "document.body.innerText.includes('%s')" "$1"; }
count() { printf "document.querySelectorAll('%s').length" "$1"; }
python3 "$source/tests/e2e/pages.py" "$dir/pages" \
    "killed=$dir/killed/report.html=$(text running)" \
    "nan=$dir/nan/report.html=$(text 'lower the learning rate') && $(count .state.bad) == 1" \
    "fine=$dir/fine/report.html=$(count '.confusion td.n') == 100 && $(count '.worst tr') > 5 &&
        $(count figure.chart) >= 4 && $(count 'figure.chart svg text') > 20" \
    "elastic=$dir/elastic/report.html=$(count '.events tr.lost') == 2 &&
        $(count '.timeline .dot') >= 4 && $(text 'was killed by signal 9')" \
    "prices=$dir/prices/report.html=$(count '.scatter .dot') >= 20 && $(count '.worst tr') == 13 &&
        $(text 'true value') && $(text RMSE)" \
    "compare=$dir/two/compare.html=$(count tr.best) >= 1" \
    "lr=$dir/lr.html=$(text 'suggested rate') && $(count 'svg .line') == 1" >out 2>&1 ||
    fail "a page"
[ -z "${TD_PICTURES:-}" ] || { mkdir -p "$TD_PICTURES" && cp pages/*.png "$TD_PICTURES"; }
echo "test_pages: ok"
