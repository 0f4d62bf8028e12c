#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks on unlike processors: all take the lowest instruction set, and give the bits that it gives
# alone; a resumed run takes that of its checkpoint. TANDEM_ISA makes a processor a lesser one.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'YAML'
name: digits
model: [flatten, {linear: 32, act: gelu}, linear]
data: {source: digits, count: 400}
train: {batch: 32, steps: 12, micro_batches: 4, optimizer: {name: adamw, lr: 0.01}}
log: {tensorboard: false, report: false}
YAML
unset TANDEM_ISA
TANDEM_ISA=scalar run 0 "$tandem" train job.yaml --run-dir scalar
want=$(digest)
grep -q '"instructions": "scalar"' scalar/checkpoints/step-*/state.json ||
    fail "the checkpoint does not say what computed it"

# Rank 1 is a lesser one.
cat >rank.sh <<'SH'
[ "$RANK" = 1 ] && export TANDEM_ISA=scalar
exec "$@"
SH
mixed() { "$tandem" launch -n 2 -- sh rank.sh "$tandem" train job.yaml "$@"; }
export -f mixed; export tandem
run 0 bash -c 'mixed --run-dir mixed'
if ! grep -q 'rank 1 computes with scalar on .* all take scalar' out; then
    # A machine that has nothing better.
    TANDEM_ISA= run 0 "$tandem" train job.yaml --run-dir plain
    [ "$(digest)" = "$want" ] || fail "mixed ranks are not noticed"
    exit 0
fi
same "mixed ranks"
run 2 bash -c 'mixed --run-dir refused --set parallel.processors=same'
has 'rank 1 computes with scalar on .*, rank 0 with .*, and parallel.processors is same'

# Half with the lesser one, then on: as if in one go there.
TANDEM_ISA=scalar run 0 "$tandem" train job.yaml --run-dir half --set train.steps=6
run 0 "$tandem" train job.yaml --resume=half
same "resumed on a better processor"
TANDEM_ISA=scalar run 0 "$tandem" train job.yaml -n 1:2 --run-dir ehalf --set train.steps=6
run 0 "$tandem" train job.yaml -n 1:2 --resume=ehalf
same "elastic ranks resumed on better processors"
# The other way round there is no way: it says so.
run 0 "$tandem" train job.yaml --run-dir better --set train.steps=6
TANDEM_ISA=scalar run 0 "$tandem" train job.yaml --resume=better
has 'continues with scalar: results will not be bit-identical'
run 0 "$tandem" train job.yaml --run-dir strict --set train.steps=6
TANDEM_ISA=scalar run 2 "$tandem" train job.yaml --resume=strict --set parallel.processors=same
has 'the run was computed with .*, which is not here'
TANDEM_ISA=scalar run 2 "$tandem" train job.yaml -n 1:2 --resume=strict \
    --set parallel.processors=same
has 'the run was computed with .*, which is not here'
run 0 "$tandem" train job.yaml --run-dir best --set train.steps=6
TANDEM_ISA=scalar run 0 "$tandem" train job.yaml -n 1:2 --resume=best
has 'continues with scalar: results will not be bit-identical'
# Of the same kind, but with other caches or vector extensions, by which oneDNN chooses kernels.
grep -q '"more": "vectors [0-9a-f]*, caches' best/checkpoints/step-00000006/state.json ||
    fail "the checkpoint does not say what oneDNN saw"
run 0 "$tandem" train job.yaml --run-dir caches --set train.steps=6
python3 - caches/checkpoints/step-*/state.json <<'PY' || fail "another checkpoint"
import hashlib, json, re, sys
path = sys.argv[1]
def dump(o, **how): # numbers as they were written
    return re.sub(r'"\\u0000([^"]*)"', r"\1", json.dumps(o, **how))
state = json.loads(open(path).read(), parse_float="\0".__add__)
state["processor"]["more"] = "vectors 0, caches 1k/1"
del state["sha256"]
text = dump(state, sort_keys=True, separators=(",", ":"))
state["sha256"] = hashlib.sha256(text.encode()).hexdigest()
open(path, "w").write(dump(state))
PY
cp -r caches others; cp -r caches elastic-others
run 2 "$tandem" train job.yaml --resume=caches --set parallel.processors=same
has 'was computed with vectors 0, caches 1k/1, here are vectors .*parallel.processors is same'
run 2 "$tandem" train job.yaml -n 1:2 --resume=elastic-others --set parallel.processors=same
has 'was computed with vectors 0, caches 1k/1, here are vectors .*parallel.processors is same'
run 0 "$tandem" train job.yaml --resume=others
has 'here are vectors .*: oneDNN may choose other kernels, whose last bits differ'
run 0 "$tandem" train job.yaml -n 2:2 --run-dir alike --set parallel.processors=same
# All with a set that is named: as the lesser one does by itself, untuned; what is not there is
# said.
TANDEM_ISA=scalar run 0 "$tandem" train job.yaml --run-dir untuned \
    --set parallel.processors=scalar
want=$(digest)
run 0 bash -c 'mixed --run-dir named --set parallel.processors=scalar'
same "mixed ranks with a named instruction set"
TANDEM_ISA=scalar run 2 "$tandem" train job.yaml --run-dir none --set parallel.processors=avx2
has 'parallel.processors is avx2, but this processor computes with scalar'
# Elastic ranks plan before they know each other: unlike ones are refused with both names, or take
# the named set.
cat >elastic.sh <<'SH'
mkdir first 2>/dev/null || { mkdir second 2>/dev/null && export TANDEM_ISA=scalar; }
exec "$@"
SH
elastic() {
    rm -rf first second
    "$tandem" launch -n 2:2 --restarts 1 -- sh elastic.sh "$tandem" train job.yaml "$@"
}
export -f elastic
run 0 bash -c 'elastic --run-dir together --set parallel.processors=scalar'
same "mixed elastic ranks with a named instruction set"
# Rank 0 stays, the other one is replaced by a better one: the run ends well if rank 0 is one too,
# and fails if it is the lesser one, which no replacement is like.
bash -c 'elastic --run-dir apart' >out 2>&1 </dev/null
status=$? want=1
has 'processor is .* on .*, but rank . has .*set parallel.processors to an instruction set'
! grep -q 'processor is scalar on .*, but rank . has' out || want=0
[ "$status" = "$want" ] || fail "unlike elastic ranks: status $status instead of $want"
