#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# `tandem train` while it runs: the progress line on a terminal, plain lines elsewhere, JSON for
# machines; signals, kill -9 and --resume with the same bits; readers that go away, full disks.
. "$(dirname "$0")/lib.sh"
go_on=1
mounted=
also_clean() { [ -z "$mounted" ] || umount "$mounted"; }

cat >job.yaml <<'END'
name: tiny
model: [flatten, {linear: {out: 256, act: relu}}, {linear: {out: 256, act: relu}}, linear]
data: {source: spirals, count: 1000}
train: {batch: 100, steps: 300, optimizer: {name: adam, lr: 0.01}, eval: {every: 100}}
checkpoint: {every: 40, keep: 2}
log: {every: 50}
END
endless=(--set train.steps=100000000 --set train.eval.every=1000000 --set checkpoint.every=200)

digest_of() { "$tandem" inspect "$1" | sed -n 's/.*weights *//p'; }
# The run in $1 has more than $2 lines of metrics.
has_lines() { [ -e "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -gt "$2" ]; }

# --- What is shown -------------------------------------------------------------------------------
"$tandem" train job.yaml --run-dir whole >out 2>err || fail "plain: status $?: $(cat err)"
[ ! -s err ] || fail "plain: standard error: $(cat err)"
! grep -q $'[\r\033]' out || fail "plain output has control characters"
[ "$(grep -c '^step [0-9]*/300  epoch' out)" -eq 6 ] || fail "not a line every 50 steps: $(cat out)"
[ "$(grep -c 'valid:.*accuracy' out)" -eq 3 ] || fail "not three validations: $(cat out)"
want=$(digest_of whole)
# One speed for one run: of the seconds of its steps, on the console and in the report; that of the
# median step is called so.
"$tandem" train job.yaml --run-dir ranks -n 2 --set checkpoint.every=1 --set train.steps=150 \
    >out2 2>&1 || fail "two ranks: $(cat out2)"
python3 - out whole out2 ranks <<'END' || fail "another speed in the report than on the console"
import re, sys
for console, run in zip(sys.argv[1::2], sys.argv[2::2]):
    said = re.search(r"time +(.*) of training, (.*) samples/s", open(console).read()).groups()
    cards = dict(reversed(c) for c in re.findall(
        r'class="card"><b>(.*?)</b><span>(.*?)</span>',
        open(run + "/report.html").read()))
    shown = cards["of training"], cards["samples per second"]
    assert said == shown, (run, said, shown)
    assert not [l for l in cards if "samples per second, all" in l], cards
assert "samples per second at the median step" in cards, cards
END

"$terminal" 100 out "$tandem" train job.yaml --run-dir seen </dev/null ||
    fail "on a terminal: status $?: $(cat out)"
python3 - out 100 <<'END' || fail "the progress line"
import re, sys
text, width = open(sys.argv[1], newline="").read(), int(sys.argv[2])
drawn = re.findall(r"\r\x1b\[K(step \d+/300  loss [^\r]*)", text)
assert drawn, text
assert all(len(line) < width for line in drawn), drawn
assert "left" in drawn[-1] and "samples/s" in drawn[-1], drawn[-1]
end = text[text.rindex("\r\x1b[K"):]  # the line is cleared before the summary
assert "finished at step 300" in end and "digest sha256:" in end and "/300" not in end, end
END
"$terminal" 24 out "$tandem" train job.yaml --run-dir narrow </dev/null || fail "narrow terminal"
python3 -c 'import re; t = open("out", newline="").read()
lines = re.findall(r"\r\x1b\[K(step \d+/300[^\r]*)", t)
assert lines and all(len(l) < 24 for l in lines), lines' || fail "a narrow terminal is written past"
TERM=dumb "$tandem" train job.yaml --run-dir dumb >out || fail "TERM=dumb"
# Lines of the log stand alone, above the progress line.
TANDEM_LOG=debug "$terminal" 100 out "$tandem" train job.yaml --run-dir logged </dev/null ||
    fail "with a log: status $?"
python3 - out <<'END' || fail "the log and the progress line"
import re, sys
screen = [l.split("\r\x1b[K")[-1] for l in open(sys.argv[1], newline="").read().split("\r\n")]
lines = [l for l in screen if " debug " in l]
assert lines and all(re.match(r"\d{4}-\d\d-\d\dT", l) for l in lines), lines
END
# Ctrl-C while the test part is measured; in smaller batches, where that was over too soon.
for batch in 50 5 1; do
    echo 'valid: SIGINT' | "$terminal" 80 out "$tandem" train job.yaml --run-dir untested-$batch \
        --set data.count=3000000 --set train.steps=1 --set train.batch=10 \
        --set train.eval.batch=$batch
    status=$?
    [ $status -eq 0 ] || break
done
[ $status -eq 130 ] && grep -q 'class="state">finished' untested-$batch/report.html &&
    ! grep -q 'test accuracy\|Confusion' untested-$batch/report.html ||
    fail "Ctrl-C in the test: status $status: $(tail -c 300 out)"

"$tandem" train job.yaml --run-dir json --json >out || fail "--json: status $?"
python3 - out "$want" <<'END' || fail "--json"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
kinds = [line["kind"] for line in lines]
assert kinds[0] == "begin" and kinds.count("step") == 300 and kinds.count("eval") >= 3, set(kinds)
assert [l["step"] for l in lines if l["kind"] == "step"] == list(range(1, 301))
end = [l for l in lines if l["kind"] == "end"]
assert len(end) == 1 and end[0]["digest"] == sys.argv[2] and end[0]["end"] == "done", end
END
grep -v '"begin"\|"end"' out | sed 's/"seconds".*//; s/"time".*//' >a # --json says what is kept
grep -v '"begin"\|"end"' json/metrics.jsonl | sed 's/"seconds".*//; s/"time".*//' >b
cmp -s a b || fail "--json and metrics.jsonl differ"

# A reader that goes away does not end the run.
"$tandem" train job.yaml --run-dir piped | head -1 >/dev/null
[ "$(digest_of piped)" = "$want" ] || fail "a closed pipe changed the run"

# --- Signals and --resume ------------------------------------------------------------------------
# Two that come together are one: `timeout` sends its signal to the program and to its group.
for sig in INT TERM HUP INT-TERM; do
    run=stop-$sig
    "$tandem" train job.yaml "${endless[@]}" --run-dir $run >out 2>err &
    pid=$!
    soon has_lines $run 90 || fail "waited in vain for: has_lines $run 90"
    kill -STOP $pid
    for one in ${sig//-/ }; do kill -"$one" $pid; done
    kill -CONT $pid
    wait $pid
    status=$?
    [ $status -eq 130 ] || fail "SIG$sig: status $status: $(cat err)"
    [ "$(wc -l <err)" -eq 1 ] && grep -q -- "--resume=$run" err || fail "SIG$sig: $(cat err)"
    [ -s $run/checkpoints/latest ] || fail "SIG$sig: no checkpoint"
    # A few steps more, against as many without interruption: bits must agree.
    step=$("$tandem" inspect $run | sed -n 's/^  step  *//p')
    for how in --resume=$run "--run-dir $run-whole"; do
        # shellcheck disable=SC2086
        "$tandem" train job.yaml --set train.steps=$((step + 37)) $how -q >out 2>err ||
            fail "SIG$sig, $how: $(cat err)"
    done
    [ "$(digest_of $run)" = "$(digest_of $run-whole)" ] || fail "SIG$sig: other bits"
done

# A second process keeps its hands off a run that is going on.
"$tandem" train job.yaml "${endless[@]}" --run-dir mine >/dev/null 2>&1 &
pid=$!
soon has_lines mine 90 || fail "waited in vain for: has_lines mine 90"
for how in --resume=mine '--run-dir mine'; do
    # shellcheck disable=SC2086
    "$tandem" train job.yaml "${endless[@]}" $how >out 2>err
    [ $? -eq 2 ] && grep -q 'another job' err || fail "two at once, $how: $(cat err)"
done
kill -9 $pid
wait $pid 2>/dev/null
python3 - mine/metrics.jsonl <<'END' || fail "metrics.jsonl after a second process"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1]).read().split("\n")[:-1]]
steps = [e["step"] for e in events if e["kind"] == "step"]
assert steps == list(range(1, len(steps) + 1)), steps
END
mkdir runs runs/tiny-0007 # one that was killed before it had begun
"$tandem" train job.yaml --set log.dir=runs --set train.steps=5 --run-dir runs/tiny-0003 -q >out
"$tandem" train job.yaml --set log.dir=runs --set train.steps=9 --resume -q >out 2>err &&
    grep -q '^runs/tiny-0003 done step 9' out || fail "resume past an empty run: $(cat out err)"

# Ctrl-C on a terminal, once and twice.
printf '%s\n' 'step  SIGINT' | "$terminal" 80 out "$tandem" train job.yaml "${endless[@]}" \
    --run-dir once
[ $? -eq 130 ] || fail "Ctrl-C: status not 130: $(tail -c 300 out)"
grep -q 'to continue: tandem train --resume=once' out || fail "Ctrl-C says: $(tail -c 300 out)"
printf 'step  SIGINT\nstep  SIGINT\n' | "$terminal" 80 out "$tandem" train job.yaml \
    "${endless[@]}" --run-dir twice
[ $? -eq 130 ] || fail "Ctrl-C twice: status not 130"

# A step that does not end: Ctrl-C again, when it is not the same moment any more, leaves at once.
"$tandem" train job.yaml "${endless[@]}" --run-dir hung --faults "hang rank=0 at=step:5" \
    >out 2>err &
pid=$!
soon grep -q 'fault: hang' err || fail "no fault: $(cat err)"
ended_by_more() { ! kill -INT $pid 2>/dev/null; }
soon ended_by_more || fail "Ctrl-C again and again does not end it"
wait $pid
status=$?
[ $status -eq 130 ] || fail "Ctrl-C twice: status $status"

# kill -9 at three moments; the newest whole checkpoint and the data's position give the same bits.
for i in 1 2 3; do
    if [ $i -eq 1 ]; then how=(--run-dir killed); else how=(--resume=killed); fi
    "$source/tests/e2e/kill_at.py" $((25 + 60 * i)) 0 \
        "$tandem" train job.yaml "${how[@]}" --json 2>err || fail "kill $i: $(cat err)"
done
"$tandem" train job.yaml --resume=killed -q >out 2>err || fail "resume after kill -9: $(cat err)"
[ "$(digest_of killed)" = "$want" ] || fail "kill -9 and resume gave other bits"
steps=$(grep -c '"kind": "step"' killed/metrics.jsonl)
[ "$steps" -eq 300 ] || fail "metrics.jsonl of a resumed run has $steps steps"
"$tandem" train job.yaml --resume=killed >out 2>err || fail "resume of a finished run: $(cat err)"
grep -q 'already finished' out || fail "a finished run: $(cat out)"
rm killed/report.html # killed, say, before it was written
"$tandem" train job.yaml --resume=killed -q >out 2>err || fail "resume at the end: $(cat err)"
[ -s killed/report.html ] && grep -q "$want" out || fail "no report after resume: $(cat out)"
! grep -q 'nan' out || fail "a loss of no step: $(cat out)"
echo x >>killed/checkpoints/step-00000300/model.safetensors
"$tandem" train job.yaml --resume=killed -q >out 2>err || fail "damaged at the end: $(cat err)"
grep -q "step 300 .*$want" out || fail "a finished run with a damaged checkpoint: $(cat out)"
"$tandem" train --resume=killed >out || fail "--resume=DIR without a job"
"$tandem" train job.yaml --resume killed --set train.steps=310 -q >out || fail "a longer run"
grep -q 'step 310' out || fail "a longer run: $(cat out)"

# Another metric is watched from here on: the best accuracy is not the loss to beat.
"$tandem" train job.yaml --run-dir watch --set train.early_stop.watch=accuracy \
    --set train.steps=100 -q >out || fail "watched accuracy"
grep -q 'best accuracy' out || fail "watched accuracy: $(cat out)"
"$tandem" train job.yaml --resume=watch --set train.steps=200 -q >out || fail "watched loss"
python3 - watch <<'END' || fail "resumed with another watched metric: $(cat out)"
import json, sys
lines = [json.loads(line) for line in open(f"{sys.argv[1]}/metrics.jsonl")]
last = [e for e in lines if e["kind"] == "eval" and e.get("part") == "valid"][-1]
state = json.load(open(f"{sys.argv[1]}/checkpoints/step-00000200/state.json"))["early_stopping"]
assert last["step"] == 200 and last["best"], last
assert state["watch"] == "loss" and state["best_step"] == 200, state
assert abs(state["best"] - last["metrics"]["loss"]) < 1e-6, (state, last)
END

# --- Places that cannot be written ---------------------------------------------------------------
one_line() { # STATUS WHAT
    [ "$1" -ne 0 ] && [ "$(wc -l <err)" -eq 1 ] || fail "$2: status $1: $(cat err)"
}
"$tandem" train job.yaml --run-dir /proc/nothing/here >out 2>err
one_line $? "a run in /proc"
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && chmod 555 closed
    "$tandem" train job.yaml --run-dir closed >out 2>err
    one_line $? "a directory without permission"
fi
mkdir full
if mount -t tmpfs -o size=64k tmpfs full 2>/dev/null; then
    mounted=$dir/full
    "$tandem" train job.yaml --run-dir full/run >out 2>err
    status=$?
    one_line $status "a full disk"
    [ $status -eq 1 ] || fail "a full disk: status $status"
    grep -q 'full/run/' err || fail "a full disk: $(cat err)"
else
    echo "test_cli_train: no permission to mount a small disk: a full one is not tested"
fi
"$tandem" train job.yaml --run-dir lost --json >/dev/full 2>err
one_line $? "--json to a full disk"
[ -s lost/checkpoints/latest ] || fail "a full disk behind --json lost the run"

exit $bad
