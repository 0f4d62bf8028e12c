#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# tandem compare as a user sees it: the table, compare.json and compare.html of named variants, of
# overlays, of values of a key and of numbers of ranks; a variant that fails; wrong input; Ctrl-C.
. "$(dirname "$0")/lib.sh"
go_on=1
# run EXPECTED_STATUS COMMAND...: output in ./out, ./err
run() {
    local want=$1 got; shift
    limited "$@" >out 2>err; got=$?
    [ "$got" = "$want" ] || fail "$* gave $got instead of $want: $(cat out err)"
}

cat >job.yaml <<'END'
name: tiny
model: [flatten, {linear: {out: 32, act: relu}}, linear]
data: {source: digits, count: 300}
train: {batch: 32, steps: 12, optimizer: {name: sgd, lr: 0.1}, eval: {every: 6}}
END
cat >fast.yaml <<'END'
train: {optimizer: {lr: 0.3}}
END
echo 'train: {optimizer: {lr: 1.0e+25}, steps: 40}' >wild.yaml # its loss is soon infinite

# --- A table, its JSON, its page -----------------------------------------------------------------
run 0 "$tandem" compare job.yaml --base --sync exact --runs fast.yaml --vary train.batch=16,64 \
    --out two --json copy.json
[ ! -s err ] || fail "standard error: $(cat err)"
cmp -s two/compare.json copy.json || fail "--json writes something else than compare.json"
python3 - <<'END' || fail "the table"
import json, re
d = json.load(open("two/compare.json"))
runs = {r["variant"]: r for r in d["runs"]}
assert list(runs) == ["job", "exact", "fast", "batch=16", "batch=64"], list(runs)
assert runs["job"]["digest"] == runs["exact"]["digest"] != runs["fast"]["digest"]
for r in runs.values():
    assert r["steps"] == 12 and r["seconds"] > 0 and 0 < r["loss"] < 10 and r["memory"] > 1e6, r
    lines = [json.loads(line) for line in open(r["dir"] + "/metrics.jsonl")]
    losses = [line["loss"] for line in lines if line["kind"] == "step"]
    assert abs(r["loss"] - losses[-1]) < 1e-6, (r["loss"], losses)
    assert r["metric"] == "valid accuracy" and 0 <= r["best"] <= 1, r
table = open("out").read()
for r in runs.values():
    line = next(l for l in table.splitlines() if l.startswith(r["variant"] + " "))
    assert "%.4f" % r["loss"] in line and r["digest"][:12] in line, (line, r)
assert re.search(r"^job .* 1\.00x", table, re.M), table
page = open("two/compare.html").read()
assert page.count("<svg") == 4 and "http" not in page.split("</style>")[1], page.count("<svg")
rows = re.findall(r'<tr( class="best")?><td class="name">(.*?)</td>', page.split("</table>")[0])
by_rank = sorted(runs, key=lambda v: -runs[v]["best"])  # of equal ones the first given is first
assert len({r["best"] for r in runs.values()}) > 1 and by_rank != list(runs), "nothing to sort"
assert [re.sub("<.*?>", "", name) for _, name in rows] == by_rank, (rows, by_rank)
assert [bool(best) for best, _ in rows] == [True] + 4 * [False], rows
assert page.count(">step</text>") == 3 and page.count(">seconds</text>") == 1, "axis titles"
for figure in re.findall(r"<figure.*?</figure>", page, re.S):
    names = re.findall(r'class="line c\d" data-name="([^"]*)"', figure)
    assert names == list(runs), (names, figure[:200])
    xs = [json.loads(x) for x in re.findall(r'data-x="([^"]*)"', figure)]
    assert all(x == sorted(x) for x in xs), xs
    lo, hi = (float(re.search(r'data-%s="([^"]*)"' % k, figure)[1]) for k in ("lo", "hi"))
    assert lo <= min(x[0] for x in xs) + 1e-3 and max(x[-1] for x in xs) <= hi * 1.001, (lo, hi)
END
run 2 "$tandem" compare job.yaml --sync exact --out two
grep -q 'already has a comparison' err || fail "an old comparison: $(cat err)"

# --- Ranks and repeats: the same bits, bytes on the wire, a directory of its own ------------------
run 0 "$tandem" compare job.yaml --ranks 1,2 --repeat 2 -q
[ "$(wc -l <out)" = 3 ] || fail "-q prints more than the table: $(cat out)"
python3 - <<'END' || fail "ranks"
import json
d = json.load(open("runs/compare-tiny-0001/compare.json"))
assert [(r["variant"], r["ranks"], r["repeat"]) for r in d["runs"]] == [
    ("n=1", 1, 1), ("n=1", 1, 2), ("n=2", 2, 1), ("n=2", 2, 2)], d
assert len({r["digest"] for r in d["runs"]}) == 1, d
assert [r["nbytes_per_step"] > 0 for r in d["runs"]] == [False, False, True, True], d
END

# Efficiency is that of a thread, relative to the same variant on the fewest ranks, wherever that
# stands, and of nothing else; every column has one unit.
run 0 "$tandem" compare job.yaml --ranks 2,1 --vary train.batch=16,64 --threads 1 --out scaled \
    --set train.steps=4
python3 - <<'END' || fail "efficiency and units: $(cat out)"
import json, re
rows = lambda page: [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in
                     re.search(r"<h2>Variants.*?</table>", page, re.S)[0].split("<tr>")[1:]]
page = open("scaled/compare.html").read()
runs = {r["variant"]: r for r in json.load(open("scaled/compare.json"))["runs"]}
shown = {row[0]: row[3] for row in rows(page) if row}
assert list(shown) == list(runs) and len(runs) == 4, (shown, list(runs))
each = lambda name: runs[name]["samples_per_second"] / runs[name]["ranks"]
for name, text in shown.items():
    want = 100 * each(name) / each(name.replace("n=2", "n=1"))
    assert abs(float(text.rstrip(" %")) - want) <= 0.51, (name, text, want)
assert shown["batch=16+n=1"] == shown["batch=64+n=1"] == "100 %", shown
assert "fficiency" not in open("two/compare.html").read()
lines = [re.split(r" {2,}", l.strip()) for l in open("out").read().splitlines()]
head = next(l for l in lines if l[0] == "variant")
lines = [l for l in lines if l[0] in runs]
for name in ["steps/s", "samples/s", "time", "B/step", "memory", "to target"]:
    column = [l[head.index(name)] for l in lines]
    units = {re.sub(r" \(.*|[0-9.<]", "", c) for c in column}
    assert len(column) == 4 and len(units) == 1, (name, column)
END

# --- Every named variant runs on several ranks ---------------------------------------------------
names=$(sed -n 's/^TD_VARIANT("\([^"]*\)".*/\1/p' "$source/cmd/tandem/variants.def" | paste -sd,)
run 0 "$tandem" compare job.yaml --sync "$names" -n 2 --out named --set train.steps=6
python3 - "$names" <<'END' || fail "named variants: $(cat out)"
import json, sys
runs = {r["variant"]: r for r in json.load(open("named/compare.json"))["runs"]}
assert list(runs) == sys.argv[1].split(","), list(runs)
assert all(r["steps"] == 6 and 0 < r["loss"] < 10 for r in runs.values()), runs
exact = runs["exact"]
for name in ["zero1", "zero2"]:
    assert runs[name]["digest"] == exact["digest"], (name, runs[name], exact)
    assert runs[name]["nbytes_per_step"] >= exact["nbytes_per_step"], (name, runs[name], exact)
for name, least in [("bf16", 1.9), ("f16", 1.9), ("onebit", 10)]:
    times = exact["nbytes_per_step"] / runs[name]["nbytes_per_step"]
    assert times > least, (name, times)
END

# --- Every sync rule that can be on two ranks, by its name ---------------------------------------
run 0 "$tandem" compare job.yaml --sync all -n 2 --out rules --set train.steps=4
has '^plugin  *-  for a job that names more$'
has '^exact-local  *-  for one rank$'
has '^hogwild  *-  for threads of one process, with jobs of its own$'
all=$("$tandem" help job sync | sed -n 's/^  \([a-z-]*\): .*/\1/p')
for rule in $all; do # whether it is run or not
    [ "$(grep -c "^$rule  " out)" = 1 ] || fail "$rule has no line: $(cat out)"
    grep -q "class=\"name\">$rule<" rules/compare.html || fail "$rule: not on the page"
done
rules=$(echo "$all" |
    grep -v -e '^exact-local$' -e '^hogwild$' -e '^cyclades$' -e '^plugin$' | paste -sd,)
python3 - "$rules" <<'END' || fail "all rules: $(cat out)"
import json, sys
runs = json.load(open("rules/compare.json"))["runs"]
assert [r["variant"] for r in runs] == sys.argv[1].split(","), runs
assert all(r["steps"] == 4 and 0 < r["loss"] < 10 for r in runs), runs
left_out = json.load(open("rules/compare.json"))["left_out"]
names = {r["variant"] for r in left_out}
assert names == {"plugin", "exact-local", "hogwild", "cyclades"}, left_out
assert all(r["why"].startswith("for ") for r in left_out), left_out
END

# --- Names: no two alike, and any that a file or a value may have ---------------------------------
mkdir -p 'a; b'
cp fast.yaml 'a; b/or; so.yaml'
cp fast.yaml compare.json.yaml
run 0 "$tandem" compare job.yaml --out names --set train.steps=2 --ranks 1,1 \
    --runs 'a; b/or; so.yaml,compare.json.yaml' --vary 'log.dir="x; y"'
python3 - <<'END' || fail "names: $(cat out err)"
import json
runs = json.load(open("names/compare.json"))["runs"]
assert [r["variant"] for r in runs] == [
    n + e for e in ("+n=1", "+n=1-2") for n in ("or__so", "compare.json-2", "dir=_x__y_")], runs
assert all(r["steps"] == 2 for r in runs), runs
END

# --- What fails ----------------------------------------------------------------------------------
run 1 "$tandem" compare job.yaml --runs wild.yaml,fast.yaml --out wild
grep -q '^wild .*failed: .*loss' out || fail "no cause: $(cat out)"
grep -q '^fast .*1.00x' out || fail "the others do not go on: $(cat out)"
grep -q 'failed: ' wild/compare.html || fail "the page does not say what failed"
# wrong PATTERN ARGUMENTS...: status 2, one line, nothing was run or made
wrong() {
    local pattern=$1; shift
    run 2 "$tandem" compare "$@" --out never
    [ "$(wc -l <err)" = 1 ] && grep -q -- "$pattern" err || fail "compare $*: $(cat err)"
    [ ! -e never ] && [ ! -s out ] || fail "compare $* did something"
}
echo 'train: {bach: 3}' >wrong.yaml
wrong 'wrong.yaml:1:9: train.bach: unknown key; did you mean train.batch' job.yaml \
    --runs fast.yaml,wrong.yaml
wrong 'nothing to compare' job.yaml
wrong "unknown variant 'exakt'; did you mean exact" job.yaml --sync exakt
wrong 'nowhere.yaml' job.yaml --runs nowhere.yaml
wrong 'nowhere.yaml' nowhere.yaml --sync exact
wrong 'expected KEY=VALUE' job.yaml --vary train.batch
wrong 'train.batch' job.yaml --vary train.batch=-3
wrong '--ranks' job.yaml --sync exact --ranks 1,x
wrong '^tandem compare: --json: no such directory: nowhere/' job.yaml --sync exact \
    --json nowhere/table.json
wrong '--repeat' job.yaml --sync exact --repeat 0
wrong "--target: 'much' is not a number" job.yaml --sync exact --target much

# --- A straggler, time to a target, ages ---------------------------------------------------------
run 0 "$tandem" compare job.yaml -n 2 --sync exact,async-peer --out late --target 0.01 --threads 1 \
    --faults 'slow rank=1 times=5'
python3 - <<'END' || fail "a straggler: $(cat out)"
import json
d = json.load(open("late/compare.json"))
exact, peer = d["runs"]
assert d["target"] == 0.01 and 0 < exact["seconds_to_target"] <= exact["seconds"] * 1.001, exact
assert exact["age"] is None and 0 <= peer["age"] <= peer["age_max"], (exact, peer)
assert "ages" not in exact and len(peer["ages"]) == 8 and sum(peer["ages"]) > 0, peer
assert ">Staleness<" in open("late/compare.html").read()
assert "to target" in open("out").read()
END

# --- More variants than a chart has room for: each is drawn ---------------------------------------
run 0 "$tandem" compare job.yaml --set train.steps=6 --out many \
    --vary train.optimizer.lr=0.01,0.02,0.03,0.04,0.05,0.06 --vary train.batch=8,16,32
python3 - <<'END' || fail "18 variants"
import json, re
names = [r["variant"] for r in json.load(open("many/compare.json"))["runs"]]
page = open("many/compare.html").read()
assert len(names) == 18, names
for title, charts in (("Loss", 4), ("Throughput", 2), ("valid accuracy", 2)):
    figures = [f for f in re.findall(r"<figure.*?</figure>", page, re.S) if f"<b>{title}, var" in f]
    assert len(figures) == charts, (title, len(figures))
    drawn = [n for f in figures for n in re.findall(r'class="line [^"]*" data-name="([^"]*)"', f)]
    assert sorted(set(drawn)) == sorted(names), (title, set(names) - set(drawn))
assert "Loss, variants 1 to 16 of 18" in page and "Loss, variants 17 to 18 of 18" in page
END

# --- Ctrl-C: the run under way stops, the table has what there is --------------------------------
echo 'slow  step 1 SIGINT' >script
echo 'train: {steps: 100000000, eval: {every: 10000000}}' >slow.yaml
limited "$terminal" 90 seen "$tandem" compare "$mark" --runs fast.yaml,slow.yaml,wild.yaml \
    --out stopped <script
got=$?
[ $got = 130 ] || fail "Ctrl-C: status $got: $(cat -v seen)"
python3 - <<'END' || fail "Ctrl-C: $(cat -v seen)"
import json, re
text = open("seen", newline="").read()
drawn = re.findall(r"\r\x1b\[K(\[[^\r]*)", text)
assert drawn and all(len(line) < 90 for line in drawn), drawn
runs = json.load(open("stopped/compare.json"))["runs"]
assert [r.get("interrupted") for r in runs] == [False, True, None], runs
assert runs[1]["steps"] > 0 and runs[2]["failed"] == "not run", runs
END
soon dead || fail "something outlived Ctrl-C"
exit $bad
