#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# What `tandem check --plan` prints is the plan that runs: its digest is the one that the ranks
# compare before the first step, of whole models, of pipelines and of layers in pieces.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'JOB'
name: plan
model:
  - flatten
  - {linear: 32, act: relu}
  - {linear: 24, act: relu}
  - {linear: 24, act: relu}
  - {linear: 16, act: relu}
  - {linear: 16, act: relu}
  - linear
data: {source: digits, count: 128, split: {valid: 0}}
train: {batch: 64, steps: 1, micro_batches: 8, optimizer: {name: adamw, lr: 0.002}}
checkpoint: end
log: {report: false, tensorboard: false}
parallel: {threads: 1}
JOB

# same_plan RANKS ARGUMENT...: the digest of check is among those that the ranks compare (where
# ranks have a part of the model in common, the groups and the ranks of one do).
same_plan() {
    run 0 "$tandem" check job.yaml -n "$@" --plan
    ! grep -q '(null)' out || fail "$*: (null)"
    want=$(sed -n 's/^  plan \(sha256:[0-9a-f]*\), without deadlock$/\1/p' out)
    [ -n "$want" ] || fail "$*: no digest"
    TANDEM_LOG=train=debug run 0 "$tandem" train job.yaml -q -n "$@" --run-dir digests
    rm -rf digests
    grep -qF "communication plan $want" out || fail "$*: the ranks have not compared $want"
}

tcp=(--set parallel.transport=tcp)
clip=(--set train.clip.norm=1)
same_plan 2
same_plan 3 "${tcp[@]}" "${clip[@]}"
same_plan 2 --set parallel.zero=1
same_plan 2 --set train.backend=far
pipeline=(2 --parallel pipeline=2)
same_plan "${pipeline[@]}"
same_plan "${pipeline[@]}" "${tcp[@]}"
same_plan "${pipeline[@]}" "${clip[@]}"
same_plan "${pipeline[@]}" --set parallel.update=in-order
same_plan "${pipeline[@]}" --set train.backend=far
same_plan "${pipeline[@]}" --set parallel.schedule=pipedream-2bw
same_plan 4 --parallel data=2,pipeline=2 --set parallel.schedule=zb-v --set parallel.zero=1
same_plan 3 --parallel pipeline=3 --set parallel.schedule=interleaved
same_plan 4 --parallel data=2,pipeline=2 --set parallel.zero=1 "${clip[@]}"
same_plan 6 --parallel data=3,pipeline=2 # replicas with unlike numbers of micro-batches
pieces=(--set parallel.tensor_pieces=2)
same_plan 2 "${pieces[@]}" --set parallel.zero=1
same_plan 3 "${pieces[@]}" --set parallel.zero=1 "${tcp[@]}" "${clip[@]}"
same_plan 4 --parallel tensor=2
same_plan 4 --parallel tensor=2 "${pieces[@]}" --set parallel.zero=1 "${clip[@]}"
same_plan 4 --parallel tensor=2,pipeline=2 "${clip[@]}"
# Elastic stages: sums that a stage without replicas sends to the one that mirrors it, statistics of
# all stages, and the moment at which all ranks have theirs.
sed 's/- {linear: 32, act: relu}/- {linear: 32, act: relu}\n  - batch_norm/' job.yaml >norm.yaml
cp job.yaml plain.yaml
cp norm.yaml job.yaml
same_plan 2 --parallel pipeline=2 --elastic "${clip[@]}"
same_plan 3 --parallel pipeline=3 --elastic
same_plan 4 --parallel data=2,pipeline=2 --elastic --set parallel.zero=1
run 0 "$tandem" check job.yaml -n 3 --parallel pipeline=3 --elastic --plan
for word in 'send .* of sums of gradients to rank' 'receive .* of sums of gradients from rank' \
    'broadcast of .* along pipeline' 'barrier along all axes'; do
    [ "$(grep -c "$word" out)" -ge 3 ] || fail "elastic stages: not three times $word"
done
cp plain.yaml job.yaml

# The rule that is named is the one of the replicas.
run 0 "$tandem" check job.yaml -n 4 --parallel tensor=2 --set parallel.zero=1 --plan
has 'sync rule exact-shm, 4 ranks'
# Messages take time.
bubble() {
    run 0 "$tandem" check job.yaml -n "${pipeline[@]}" --set "parallel.transport=$1"
    has "  bubble: .* $2"
    sed -n 's/^  bubble: \([0-9.]*\) %.*/\1/p' out >"$1.bubble"
}
bubble shm 'memory of 5 GB/s'
bubble tcp 'links of 10 Gbit/s'
awk 'NR == FNR { a = $1 } NR != FNR { exit !($1 > a) }' shm.bubble tcp.bubble ||
    fail "messages over a network cost no more than in memory"
# The figures of books are beside ours.
run 0 "$tandem" check "$source/examples/pipeline-four-layers.yaml" -n 4
has "29.4 % if all phases take the same; GPipe's formula .* says 42.9 %"

# In memory that processes share, values go from stage to stage in one copy, each of them: also of
# short batches, and where batches are accumulated. Over TCP none does.
one_copy() {
    TANDEM_LOG=train=debug run 0 "$tandem" train job.yaml -q -n "${@:2}" --run-dir copies \
        --set train.steps=4
    rm -rf copies
    python3 - "$1" <<'END' || fail "${*:2}: $(grep 'in one copy' out)"
import re, sys
text = open("out").read()
found = re.findall(r"(\d+) of (\d+) lists of operations with values in one copy", text)
assert found and all(int(n) > 0 for _, n in found), found
assert all(int(d) == (int(n) if sys.argv[1] == "all" else 0) for d, n in found), found
END
}
one_copy all "${pipeline[@]}"
one_copy all "${pipeline[@]}" --set train.batch=48 --set train.accumulate=2
one_copy all 4 --parallel pipeline=4
one_copy all 3 --parallel pipeline=3 --set parallel.schedule=zb-v
one_copy all 4 --parallel tensor=2,pipeline=2
one_copy none "${pipeline[@]}" "${tcp[@]}"

# All lists of a run are compared: of replicas with fewer micro-batches, and of steps that the end
# of an epoch cuts short.
compared() {
    TANDEM_LOG=train=debug run 0 "$tandem" train job.yaml -q -n "${@:2}" --run-dir lists
    rm -rf lists
    found=$(grep -o 'communication plan sha256:.*' out | sort -u | wc -l)
    [ "$found" = "$1" ] || fail "${*:2}: $found lists were compared, not $1"
}
compared 3 6 --parallel data=3,pipeline=2 # of 2 and of 3 micro-batches, and of replicas
compared 3 "${pipeline[@]}" --set train.batch=24 --set train.accumulate=4 --set train.steps=4

# Elastic ranks whose number is no multiple of the stages are as many stages.
run 2 "$tandem" check job.yaml -n 3 --parallel pipeline=2 --plan
run 0 "$tandem" check job.yaml -n 3 --parallel pipeline=2 --plan --elastic
has '^pipeline, pipeline=3, schedule 1f1b'

# Variants of a comparison are arranged as they say, whatever the job's own axes are.
sed 's/^parallel: {/parallel: {data: 4, /' job.yaml >four.yaml
run 0 "$tandem" compare four.yaml -q --parallel pipeline=2/data=2 --out meshes
python3 - <<'END' || fail "compare: $(cat out)"
import json
runs = json.load(open("meshes/compare.json"))["runs"]
assert [r["variant"] for r in runs] == ["pipeline=2", "data=2"], runs
assert len({r["digest"] for r in runs}) == 1, runs
END
echo "test_plan_digest: passed"
