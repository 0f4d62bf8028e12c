#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# tandem train on several ranks as a user sees it: the same digest for any number of ranks over
# shared memory and TCP and under every launcher, signals, a killed rank, bad input, no orphans.
. "$(dirname "$0")/lib.sh"
export TANDEM_LOG=coll=error # not who waits for whom on a machine that is busy with other things

cat >"$mark" <<'JOB'
name: net
model:
  - {conv2d: 4, kernel: 3, stride: 2}
  - batch_norm
  - relu
  - flatten
  - dropout: 0.2
  - linear
data:
  source: digits
  count: 200
  maps: [{crop: 24}]
train: {batch: 32, epochs: 2, accumulate: 2, micro_batches: 4, optimizer: {name: adam, lr: 0.01},
        clip: 1}
JOB

run 0 "$tandem" train "$mark" -q
want=$(digest)
[ -n "$want" ] || fail "no digest"
for n in 1 2 3 5; do
    for transport in shm tcp; do
        run 0 "$tandem" train "$mark" -q -n $n --set parallel.transport=$transport
        [ "$(wc -l <out)" = 1 ] || fail "-n $n $transport: more than one line"
        same "-n $n $transport"
    done
done
run 0 "$tandem" train "$mark" -q -n 9 --set train.precision=bf16 # more ranks than micro-batches
bf16=$(digest)
run 0 "$tandem" train "$mark" -q --set train.precision=bf16
[ "$(digest)" = "$bf16" ] || fail "bf16: other digests"
run 0 "$tandem" launch -n 2 -- "$tandem" train "$mark" -q
same "tandem launch"
# What torchrun sets, with or without torchrun here.
for r in 1 0; do
    RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 \
        timeout $((2 * patience)) "$tandem" train "$mark" -q >out.$r 2>&1 & # no shell in between
done
wait
cp out.0 out
same "torchrun's variables"
[ ! -s out.1 ] || fail "rank 1 prints: $(cat out.1)"
if command -v mpirun.openmpi >/dev/null; then
    run 0 mpirun.openmpi --allow-run-as-root --oversubscribe -n 3 "$tandem" train "$mark" -q
    same mpirun
fi

# Machines read rank 0's lines; a run of one job per directory.
run 0 "$tandem" train "$mark" -n 2
has '^net: runs/net-.*, on 2 ranks (shm)$'
page=$(sed -n 's/^report //p' out)
grep -q '>Ranks<' "$page" && grep -q 'Measured against runs/net-' "$page" || fail "the report"
run 0 "$tandem" train "$mark" -n 2 --json --run-dir=first
python3 -c 'import json
lines = [json.loads(line) for line in open("out")]
assert lines[0]["kind"] == "begin" and lines[0]["ranks"] == 2, lines[0]' || fail "--json"
run 2 "$tandem" train "$mark" -n 2 --run-dir=first
has 'already has a run'
[ "$(grep -c 'already has a run' out)" = 1 ] || fail "an error is said more than once"
run 0 "$tandem" train --resume=first -n 3
has 'already finished'

# On a terminal: the progress line of one rank within its width; lines of the ranks' logs alone.
TANDEM_LOG=debug run 0 "$terminal" 70 seen "$tandem" train "$mark" -n 2 --set train.epochs=30 \
    </dev/null
python3 - seen 70 <<'END' || fail "on a terminal: $(cat -v seen)"
import re, sys
text, width = open(sys.argv[1], newline="").read(), int(sys.argv[2])
drawn = re.findall(r"\r\x1b\[K(step \d+/\d+  loss [^\r]*)", text)
assert drawn and all(len(line) < width for line in drawn), drawn
assert any("samples/s" in line for line in drawn), drawn
screen = [line.split("\r\x1b[K")[-1] for line in text.split("\r\n")]
logged = [line for line in screen if " debug " in line]
assert any(line.startswith("[1] ") for line in logged), logged
assert all(re.match(r"(\[1\] )?\d{4}-\d\d-\d\dT", line) for line in logged), logged
assert "digest sha256:" in text[text.rindex("samples/s"):], text
END
printf '%s\n' 'step 2 SIGINT' | limited "$terminal" 70 seen "$tandem" train "$mark" -n 2 \
    --set train.epochs=10000
[ $? = 130 ] || fail "Ctrl-C on a terminal: $(cat -v seen)"
none_left "Ctrl-C on a terminal"

# --profile: one trace of all ranks on one clock, with buckets where there are messages.
for transport in shm tcp; do
    run 0 "$tandem" train "$mark" -n 3 -q --profile --run-dir="trace-$transport" \
        --set parallel.transport=$transport
    python3 - "trace-$transport/trace.json" $transport <<'END' || fail "the trace over $transport"
import json, sys
trace = json.load(open(sys.argv[1]))
spans = [e for e in trace if e["ph"] == "X"]
end = lambda e: e["ts"] + e["dur"]
of = lambda rank, word: [e for e in spans if e["pid"] == rank and e["name"].split()[0] == word]
SLACK = 1  # a microsecond: times are rounded
steps = [{e["name"]: e for e in of(r, "step")} for r in range(3)]
assert steps[0] and list(steps[0]) == list(steps[1]) == list(steps[2]), steps
for name in steps[0]:  # nobody ends a step before all have begun it
    ranks = [s[name] for s in steps]
    assert max(e["ts"] for e in ranks) < min(end(e) for e in ranks), ranks
for rank in range(3):
    for word in ["micro-batch", "wait", "update", "data"] + (["bucket"] if sys.argv[2] == "tcp" else
                                                       ["reduce"]):
        found = of(rank, word)
        assert found or word in ("data", "wait"), (rank, word)
        for e in found:
            step = steps[rank]["step %d" % e["args"]["step"]]
            assert step["ts"] - SLACK <= e["ts"] and end(e) <= end(step) + SLACK, (e, step)
            if word == "bucket":
                assert step["ts"] <= e["args"]["ready"] <= e["ts"] + SLACK, (e, step)
    assert len(of(rank, "valid")) == 2, of(rank, "valid")
threads = {(e["pid"], e["args"]["name"]) for e in trace if e["name"] == "thread_name"}
assert all((r, row) in threads for r in range(3) for row in ("compute 0", "communication")), threads
names = [e["args"]["name"] for e in trace if e["name"] == "process_name"]
assert names == ["net: rank 0", "rank 1", "rank 2"], names
END
done

# Wrong input, in the job and in the data.
run 2 "$tandem" train "$mark" -n 2 --set train.bach=3
[ "$(wc -l <out)" = 1 ] || fail "a wrong job is said more than once"
run 2 "$tandem" train "$mark" -n 2 --set data.source=mnist --set data.dir=nowhere
[ "$(grep -c '^tandem train:' out)" = 1 ] || fail "wrong data are said more than once"
run 2 "$tandem" train "$mark" -n zero
run 2 "$tandem" launch -n 2 -- "$tandem" train "$mark" -n 3
none_left "wrong input"

# start_long N DIR: a run that would take long, up to its first steps
start_long() {
    rm -f out
    "$tandem" train "$mark" -n "$1" --run-dir="$2" --set log.every=1 --profile >out 2>&1 &
    launcher=$!
    soon grep -qs '"kind": *"step"' "$2/metrics.jsonl" || fail "the run did not start"
}
sed -i 's/epochs: 2/epochs: 10000/' "$mark"

# Ctrl-C: all ranks stop at one step with a checkpoint; any number of ranks goes on.
start_long 3 stopped
kill -INT $launcher
wait $launcher; got=$?
[ $got = 130 ] || fail "Ctrl-C gave $got"
has 'interrupted after step'
none_left "Ctrl-C"
python3 -c 'import json; t = json.load(open("stopped/trace.json"))
assert {e["pid"] for e in t if e["ph"] == "X"} == {0, 1, 2}, len(t)' || fail "no trace after Ctrl-C"
step=$(grep -o 'interrupted after step [0-9]*' out | grep -o '[0-9]*$')
more=$((step + 5))
sed -i "s/epochs: 10000/steps: $more/" "$mark"
run 0 "$tandem" train "$mark" -q
want=$(digest)
cp -r stopped again
run 0 "$tandem" train "$mark" -q --resume=stopped -n 2
same "interrupted on 3 ranks, resumed on 2"
run 0 "$tandem" train "$mark" -q --resume=again
same "interrupted on 3 ranks, resumed on one"

# kill -9 of a rank.
sed -i "s/steps: $more/epochs: 10000/" "$mark"
start_long 3 killed
victim=$(pgrep -f "train .*-- $mark" | while read -r p; do
    grep -qz '^TANDEM_RANK=1$' "/proc/$p/environ" 2>/dev/null && echo "$p"; done)
[ -n "$victim" ] || fail "no rank 1"
kill -9 "$victim"
wait $launcher; got=$?
[ $got = 1 ] || fail "kill -9 of a rank gave $got"
has 'tandem train: .*rank 1'
none_left "the death of one"
