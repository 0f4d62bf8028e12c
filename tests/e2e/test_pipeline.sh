#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# parallel.pipeline as a user sees it: the digest of one rank with every schedule, with replicas,
# over shared memory and TCP, with tied weights, batch norm, dropout, clipping, accumulation and
# last batches; checkpoints that know nothing of it; a rank that is killed; what `tandem check`
# prints; bad input.
. "$(dirname "$0")/lib.sh"

cat >mlp.yaml <<'JOB'
name: mlp
model: [flatten, {linear: 64, act: relu}, {linear: 48, act: relu}, {linear: 32, act: relu}, linear]
data: {source: digits, count: 300, split: {valid: 0.1}}
train: {batch: 64, epochs: 2, micro_batches: 8, optimizer: {name: adamw, lr: 0.002}}
JOB
cat >cnn.yaml <<'JOB'
name: cnn
model:
  - {conv2d: 4, kernel: 3, act: relu}
  - batch_norm
  - {conv2d: 4, kernel: 3, stride: 2, act: relu}
  - batch_norm
  - flatten
  - dropout: 0.2
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 200, split: {valid: 0.1}}
train: {batch: 30, epochs: 2, micro_batches: 6, accumulate: 2, clip: 1, optimizer: lamb}
JOB
for i in $(seq 400); do echo "line $i of a text, and $((i * 7 % 13)) more"; done >text.txt
cat >gpt.yaml <<'JOB'
name: gpt
model: {name: gpt2, layers: 3, heads: 2, width: 32}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.05}}
train:
  {batch: 16, steps: 6, micro_batches: 4, clip: 1, precision: bf16, optimizer: adamw,
   eval: {every: 3}}
JOB

# cell JOB RANKS STAGES SCHEDULE TRANSPORT
cell() {
    run 0 "$tandem" train "$1.yaml" -q -n "$2" --parallel "pipeline=$3" \
        --set "parallel.schedule=$4" --set "parallel.transport=$5"
    same "$1 on $2 ranks, $3 stages, $4, $5"
}

for job in mlp cnn gpt; do
    run 0 "$tandem" train $job.yaml -q
    want=$(digest)
    [ -n "$want" ] || fail "no digest"
    if [ -n "${TD_TEST_FULL:-}" ]; then
        for schedule in 1f1b gpipe interleaved zb-h1 zb-v dualpipe-v; do
            for transport in shm tcp; do
                for ranks in 2 4 8; do cell $job $ranks 2 $schedule $transport; done
            done
        done
        for ranks in 3 6; do cell $job $ranks 3 1f1b shm; done
        cell $job 4 4 zb-h1 tcp
    fi
    cell $job 4 2 1f1b tcp
    cell $job 3 3 zb-h1 shm
    cell $job 2 2 zb-v shm
done
# Up to eight ranks in up to eight stages, of up to sixteen chunks, which needs deeper models; and
# memory that the host cannot touch, with every schedule.
if [ -n "${TD_TEST_FULL:-}" ]; then
    others=$want
    cat >deepmlp.yaml <<'JOB'
name: deepmlp
model:
  - flatten
  - repeat: {times: 16, layers: [{linear: 24, act: relu}]}
  - linear
data: {source: digits, count: 128, split: {valid: 0}}
train: {batch: 32, steps: 3, micro_batches: 8, optimizer: {name: adamw, lr: 0.002}}
JOB
    cat >deepcnn.yaml <<'JOB'
name: deepcnn
model:
  - repeat: {times: 8, layers: [{conv2d: 4, kernel: 3, act: relu, padding: same}, batch_norm]}
  - flatten
  - linear
data: {source: digits, count: 60, split: {valid: 0.1}}
train: {batch: 24, steps: 3, micro_batches: 6, clip: 1, optimizer: lamb}
JOB
    sed 's/name: gpt$/name: deepgpt/; s/layers: 3/layers: 8/; s/steps: 6/steps: 3/' \
        gpt.yaml >deepgpt.yaml
    for job in deepmlp deepcnn deepgpt; do
        run 0 "$tandem" train $job.yaml -q
        want=$(digest)
        for schedule in 1f1b gpipe interleaved zb-h1 zb-v dualpipe-v; do
            for transport in shm tcp; do
                cell $job 4 4 $schedule $transport
                cell $job 8 4 $schedule $transport # data=2
                cell $job 8 8 $schedule $transport
            done
            run 0 "$tandem" train $job.yaml -q -n 2 --parallel pipeline=2 \
                --set train.backend=far --set parallel.schedule=$schedule
            same "$job on device far, $schedule"
        done
    done
    want=$others
fi
# Several chunks on each of three and four stages, with fewer micro-batches than stages and more.
cat >deep.yaml <<'JOB'
name: deep
model:
  - flatten
  - repeat: {times: 8, layers: [{linear: 24, act: relu}]}
  - linear
data: {source: digits, count: 128, split: {valid: 0}}
train: {batch: 32, steps: 3, micro_batches: 8, optimizer: {name: adamw, lr: 0.002}}
JOB
others=$want
for micro_batches in 2 8; do
    run 0 "$tandem" train deep.yaml -q --set train.micro_batches=$micro_batches
    want=$(digest)
    for schedule in interleaved zb-v dualpipe-v; do
        for stages in 3 4; do
            run 0 "$tandem" train deep.yaml -q -n $stages --parallel pipeline=$stages \
                --set parallel.schedule=$schedule --set train.micro_batches=$micro_batches
            same "$micro_batches micro-batches on $stages stages, $schedule"
        done
    done
done
want=$others
# Batches that are accumulated are run in one go where that takes no more memory.
run 0 "$tandem" train cnn.yaml -q --set train.steps=3
others=$want want=$(digest)
for schedule in 1f1b zb-h1; do
    run 0 "$tandem" train cnn.yaml -q -n 2 --parallel pipeline=2 --set train.steps=3 \
        --set parallel.schedule=$schedule --run-dir through-$schedule
    same "two batches of a step in one go, $schedule"
    grep -q '"kind": "pipeline".*"micro_batches": 12,' through-$schedule/metrics.jsonl ||
        fail "$schedule: the pipeline was emptied after a batch"
done
want=$others
run 0 "$tandem" train gpt.yaml -q -n 4 --parallel data=2,pipeline=2 --set parallel.update=in-order
same "gpt, stages in order"
cell gpt 4 4 1f1b shm # tied weights cross three stages
cell gpt 2 2 interleaved shm
cell gpt 4 2 dualpipe-v tcp
cell gpt 2 2 gpipe shm
# Replicas of a stage share the optimizer's states, or send their gradients in fewer bits.
for job in cnn gpt; do
    run 0 "$tandem" train $job.yaml -q
    want=$(digest)
    for ranks in 4 6; do
        run 0 "$tandem" train $job.yaml -q -n $ranks --parallel pipeline=2 --set parallel.zero=1 \
            --set parallel.transport="$([ $ranks = 4 ] && echo shm || echo tcp)"
        same "$job on $ranks ranks with parallel.zero 1"
    done
done
run 0 "$tandem" train gpt.yaml -q -n 4 --parallel pipeline=2 --set parallel.compress=bf16
[ "$(digest)" != "$want" ] || fail "bf16 gradients give the bits of f32"
bf16=$(digest)
run 0 "$tandem" train gpt.yaml -q -n 4 --parallel pipeline=2 --set parallel.compress=bf16
[ "$(digest)" = "$bf16" ] || fail "bf16 gradients give other bits each time"
run 2 "$tandem" train gpt.yaml -q -n 4 --parallel pipeline=2 --set parallel.compress=topk
has "use bf16, f16 or powersgd"
run 0 "$tandem" compare mlp.yaml -q --parallel data=2/pipeline=2/data=2,pipeline=2 --out meshes
python3 - <<'PY' || fail "compare --parallel"
import json
runs = json.load(open("meshes/compare.json"))
text = json.dumps(runs)
for name in "data=2", "pipeline=2", "data=2_pipeline=2":
    assert '"%s"' % name in text, name
PY
# A replica without a micro-batch of its own folds the statistics of batch norm in, too.
run 0 "$tandem" train cnn.yaml -q --set train.micro_batches=1 --set train.accumulate=1
want=$(digest)
run 0 "$tandem" train cnn.yaml -q --set train.micro_batches=1 --set train.accumulate=1 -n 4 \
    --parallel pipeline=2
same "cnn on a replica without micro-batches"
# Replicas with unlike numbers of micro-batches, of which one makes another list of operations.
run 0 "$tandem" train gpt.yaml -q --set train.micro_batches=9 --set train.batch=36
want=$(digest)
run 0 "$tandem" train gpt.yaml -q --set train.micro_batches=9 --set train.batch=36 -n 4 \
    --parallel data=2,pipeline=2 --set parallel.schedule=interleaved
same "gpt with nine micro-batches, interleaved"
# A rank holds its stage's params, gradients and optimizer states alone.
cat >large.yaml <<'JOB'
name: large
model: {name: gpt2, layers: 8, heads: 4, width: 320}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.05}}
train:
  {batch: 8, steps: 2, micro_batches: 8, clip: 1, optimizer: adamw, eval: {every: 2}}
parallel: {threads: 1}
JOB
peak() { sed -n 's/.*"memory_peak": \([0-9]*\).*/\1/p' "$1/metrics.jsonl" | tail -1; }
run 0 "$tandem" train large.yaml -q --run-dir whole
want=$(digest)
run 0 "$tandem" train large.yaml -q -n 4 --parallel pipeline=4 --run-dir quarters
same "large on four stages"
whole=$(peak whole) quarter=$(peak quarters)
[ -n "$whole" ] && [ -n "$quarter" ] || fail "no peak memory in metrics.jsonl"
echo "peak memory: $whole bytes on one rank, at most $quarter on each of four stages," \
    "$((100 * quarter / whole)) %"
[ $((100 * quarter)) -le $((40 * whole)) ] || fail "a stage holds more than 40 % of one rank"
# Memory that the host cannot touch.
run 0 "$tandem" train cnn.yaml -q
want=$(digest)
run 0 "$tandem" train cnn.yaml -q -n 4 --parallel pipeline=2 --set train.backend=far
same "cnn on device far"
run 0 "$tandem" train gpt.yaml -q
want=$(digest)
run 0 "$tandem" train gpt.yaml -q -n 2 --parallel pipeline=2 --set train.backend=far \
    --set parallel.schedule=zb-v
same "gpt on device far"

# Checkpoints do not know how the ranks were arranged.
run 0 "$tandem" train gpt.yaml -q -n 4 --parallel data=2,pipeline=2 --set train.steps=3 \
    --set parallel.zero=1 --run-dir half
run 0 "$tandem" train gpt.yaml -q --resume=half -n 3 --parallel pipeline=3
same "going on with three stages"
run 0 "$tandem" train gpt.yaml -q -n 3 --parallel pipeline=3 --set train.steps=3 --run-dir third
run 0 "$tandem" train gpt.yaml -q --resume=third
same "going on with one rank"

# A rank that is killed ends the job, with its name.
run 1 "$tandem" train gpt.yaml -q -n 4 --parallel pipeline=4 --faults "kill rank=2 at=step:3"
has 'rank 2'
dead || fail "processes are left"

# What the stages did: in trace.json, in the report, at the end.
run 0 "$tandem" train mlp.yaml -n 2 --parallel pipeline=2 --profile --run-dir seen
has 'idle .* expected of the chunks'
for word in '"stage 1"' '"forward 3"' '"backward 0"' '"weight gradients 7"' '"send ' '"receive '; do
    grep -qF "$word" seen/trace.json || fail "trace.json has no $word"
done
python3 - <<'PY' || fail "trace.json or metrics.jsonl"
import json
rows = {}
for e in json.load(open("seen/trace.json")):
    if e["ph"] == "X" and 6 <= e["tid"] <= 10:
        rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
assert len(rows) >= 4, rows.keys()
for spans in rows.values():  # one after the other
    spans.sort()
    assert all(a[1] <= b[0] + 0.01 for a, b in zip(spans, spans[1:]))
p = [o for o in map(json.loads, open("seen/metrics.jsonl")) if o["kind"] == "pipeline"][-1]
assert p["stages"] == 2 and p["micro_batches"] == 8 and len(p["runs"]) == 2 * 8 * 3
assert 0 <= p["idle"] < 1 and 0 < p["idle_expected"] < 1 and 0 < p["idle_even"] < 1
for s, c, phase, m, begin, end in p["runs"]:
    assert s == c and 0 <= begin <= end
PY
grep -q '<h2>Pipeline</h2>' seen/report.html && grep -q 'stage 1, chunk 1: backward' \
    seen/report.html || fail "report.html has no diagram"

# By hand: chunks begin with layers, or layers say where they want to be.
run 0 "$tandem" train mlp.yaml -q
want=$(digest)
run 0 "$tandem" train mlp.yaml -q -n 3 --parallel pipeline=3 \
    --set 'parallel.stages=linear2, linear4'
same "mlp by layers"
run 0 "$tandem" check mlp.yaml -n 3 --parallel pipeline=3 --set 'parallel.stages=linear2, linear4'
has '1      1 .* linear2 to linear3'
sed 's/linear: 48/linear: 48, place: 1/; s/, linear\]/, {linear: classes, place: 2}]/' \
    mlp.yaml >placed.yaml
run 0 "$tandem" train placed.yaml -q -n 3 --parallel pipeline=3
same "mlp by places"
run 0 "$tandem" train placed.yaml -q
same "mlp with places on one rank"
run 0 "$tandem" check placed.yaml -n 3 --parallel pipeline=3
has '1      1 .* linear2 to linear3'
sed 's/place: 2/place: 0/' placed.yaml >circle.yaml
run 2 "$tandem" train circle.yaml -q -n 2 --parallel pipeline=2
has "circle.yaml:2: 'linear4.weight' wants place 0 and needs 'linear3.weight' of place 1: "
has 'interleaved: 0 1 0 1'
run 2 "$tandem" train placed.yaml -q -n 2 --parallel pipeline=2
has 'wants place 2'
# Schedules of several chunks: a stage's layers that follow each other are shared by its chunks, and
# places may come back to a stage.
run 0 "$tandem" train circle.yaml -q -n 2 --parallel pipeline=2 --set parallel.schedule=zb-v
same "mlp by places, zb-v"
run 0 "$tandem" train circle.yaml -q -n 2 --parallel pipeline=2 --set parallel.schedule=dualpipe-v
same "mlp by places, dualpipe-v"
sed 's/linear: 32, act: relu/linear: 32, act: relu, place: 0/; s/place: 0}\]/place: 1}]/' \
    circle.yaml >there-and-back.yaml
run 0 "$tandem" train there-and-back.yaml -q -n 2 --parallel pipeline=2 \
    --set parallel.schedule=interleaved
same "mlp by places, interleaved"
run 2 "$tandem" train circle.yaml -q -n 2 --parallel pipeline=2 \
    --set parallel.schedule=interleaved
has 'place: nothing is on chunk 3 (stage 1): .* stages 0 1 0 1, .* use the schedule 1f1b'
run 2 "$tandem" check placed.yaml -n 4 --parallel pipeline=4
has 'place: nothing is on stage 3: .* use fewer stages'
# Places that nothing is put on are not passed over in silence.
run 0 "$tandem" train placed.yaml -n 2 --set train.steps=1
has 'place: layers are put on stages 0 to 2, and parallel.pipeline is not set'
run 2 "$tandem" train mlp.yaml -q -n 2 --parallel pipeline=2 --set 'parallel.stages=linear9'
has "parallel.stages: no layer with params is called 'linear9'"
run 2 "$tandem" train mlp.yaml -q -n 2 --parallel pipeline=2 \
    --set 'parallel.stages=linear2,linear3'
has 'parallel.stages: names the first layers of 3 chunks, and there are 2: name 1'
run 2 "$tandem" train mlp.yaml -q -n 3 --parallel pipeline=3 \
    --set 'parallel.stages=linear3,linear2'
has "'linear2' comes before 'linear3'"

# The jobs that ship, with the idle share that they are about.
four=$source/examples/pipeline-four-layers.yaml
run 0 "$tandem" train "$four" -n 4 --set data.count=512 --set train.epochs=2 \
    --set train.micro_batches=1
has 'idle '
has '62.5 % if all phases took the same'
run 0 "$tandem" train "$source/examples/pipeline-transformer.yaml" -n 2 --set train.steps=3 \
    --set "data.train=$PWD/text.txt"
has 'idle '

# Pipelines that are not emptied in each step: what they promise, and what they are not for.
flow() { run "$1" "$tandem" "$2" mlp.yaml -n 2 --parallel pipeline=2 "${@:3}"; }
for schedule in pipedream pipedream-2bw; do
    flow 0 train --set parallel.schedule=$schedule
    has "parallel.schedule $schedule: not the bits of one rank, but a function of"
    has 'idle .* expected of the chunks'
    flow 0 check --set parallel.schedule=$schedule --plan
    has 'without deadlock'
    [ "$(grep -c 'update of the params of chunk 0' out)" = 64 ] || fail "$schedule: not 64 updates"
    # Tied weights, and what ranks say, in each batch of the window: on both stages.
    run 0 "$tandem" check gpt.yaml -n 2 --parallel pipeline=2 --set parallel.schedule=$schedule \
        --set train.clip=0 --plan
    [ "$(grep -c ' send .* of params to rank 1' out)" = 64 ] || fail "$schedule: not 64 sends"
    [ "$(grep -c 'of losses and requests along all axes' out)" = 128 ] ||
        fail "$schedule: not 128 sums"
    run 0 "$tandem" train gpt.yaml -q -n 4 --parallel pipeline=2 \
        --set parallel.schedule=$schedule --set train.clip=0
    others=$(digest)
    run 0 "$tandem" train gpt.yaml -q -n 2 --parallel pipeline=2 \
        --set parallel.schedule=$schedule --set train.clip=0 --set parallel.transport=tcp
    [ "$(digest)" = "$others" ] || fail "$schedule: other bits on two replicas"
done
run 0 "$tandem" train mlp.yaml -q
want=$(digest)
run 0 "$tandem" train mlp.yaml -q -n 2 --set parallel.schedule=pipedream # of one stage each
same "pipedream with one stage"
dream=(--set parallel.schedule=pipedream)
flow 2 train "${dream[@]}" --set train.clip=1
has 'not with train.clip.norm'
flow 2 train "${dream[@]}" --set parallel.zero=1
has 'not with parallel.zero'
flow 2 train "${dream[@]}" --set train.accumulate=2
has 'not with train.accumulate'
flow 2 train "${dream[@]}" --set parallel.update=in-order
has 'use together, or 1f1b'
flow 2 train "${dream[@]}" --set train.backend=far
has 'needs memory that the host reads'
run 2 "$tandem" train mlp.yaml -n 8 --parallel pipeline=2 "${dream[@]}" --set train.micro_batches=2
has 'every replica needs a micro-batch, and there are 2 for 4 replicas'
flow 0 check --set parallel.update=in-order --plan
has 'receive the turn to update from rank 0'

run 0 "$tandem" check gpt.yaml -n 4 --parallel pipeline=2 --plan=plan.json
has 'pipeline, data=2,pipeline=2, schedule 1f1b'
has 'bubble: '
has 'transformer.wte to '
has 'stage  parameters'
has 'without deadlock'
has 'pipeline stage 1 (ranks 2 to 3): '
has 'send .* of params to stage 1$' # of tied weights
has 'allreduce of .* of losses and requests along pipeline'
has 'send forward values of micro-batch 0 to stage 1'
python3 -c 'import json; assert len(json.load(open("plan.json"))) > 20' || fail "no timeline"

# As few stages as fit memory.
run 0 "$tandem" check large.yaml -n 4 --parallel auto:1GB
has 'parallel auto: data=4, '
run 0 "$tandem" check large.yaml -n 4 --parallel auto:200MB
has 'parallel auto: pipeline=4, '
has 'pipeline, pipeline=4, schedule 1f1b'
run 0 "$tandem" train large.yaml -n 2 --parallel auto:400MB --set train.steps=1
has 'parallel auto: pipeline=2, '
has 'expected of the chunks'
# The job's own axes give way; a run that is resumed goes on.
run 0 "$tandem" train mlp.yaml -q
want=$(digest)
{ cat mlp.yaml; echo 'parallel: {pipeline: 2}'; } >piped.yaml
run 0 "$tandem" train piped.yaml -q -n 4 --parallel auto --run-dir chosen
same "arranged by auto"
run 0 "$tandem" train -q --resume=chosen -n 2 --parallel auto
same "arranged by auto, resumed"
run 2 "$tandem" train mlp.yaml -q -n 2:4 --parallel auto
has 'auto: not with elastic ranks'
run 2 "$tandem" train large.yaml -q -n 4 --parallel auto:20MB
has 'no arrangement of 4 ranks fits 20.0 MB for each; pipeline=4 needs '
run 2 "$tandem" train large.yaml -q -n 4 --parallel auto:much
has 'expected auto:SIZE as in auto:200MB'

run 2 "$tandem" train gpt.yaml -q -n 3 --parallel pipeline=2
has 'needs a multiple of 2 ranks, and there are 3: use -n 4'
run 2 "$tandem" train gpt.yaml -q -n 4 --parallel data=4,pipeline=2
has 'use -n 8'
run 2 "$tandem" train gpt.yaml -q --parallel pipeline=2
has 'use -n 2'
run 2 "$tandem" train mlp.yaml -q -n 3 --parallel data=2
has 'data=2 needs 2 ranks, and there are 3: use -n 2'
run 2 "$tandem" check mlp.yaml -q -n 3 --parallel data=2
run 2 "$tandem" check mlp.yaml -q -n 1 --parallel data=2
has 'data=2 needs 2 ranks, and there are 1: use -n 2'
run 2 "$tandem" train mlp.yaml -q --parallel data=2
has 'use -n 2'
run 2 "$tandem" check mlp.yaml -n 2 --parallel pipeline=2 --plan=none/plan.json
has 'no such directory: none/'
run 2 "$tandem" check gpt.yaml -n 40 --parallel pipeline=40
has 'cannot be cut into 40 chunks: use fewer stages'
run 2 "$tandem" check gpt.yaml -q -n 40 --parallel pipeline=40
# Nothing is started, nothing is made.
run 2 "$tandem" train gpt.yaml -n 40 --parallel pipeline=40 --run-dir uncut
has 'cannot be cut into 40 chunks: use fewer stages'
[ "$(wc -l <out)" = 1 ] || fail "an uncut model: more than one line"
[ ! -e uncut ] || fail "an uncut model: there is a run"
run 2 "$tandem" train gpt.yaml -q -n 2 --parallel pipelin=2
has 'axes are data, pipeline'
run 2 "$tandem" train gpt.yaml -q -n 2 --parallel pipeline=2 --set parallel.schedule=2f2b
has '1f1b'
run 2 "$tandem" train gpt.yaml -q -n 2 --parallel pipeline=2 --set parallel.chunks=3
has 'use the schedule interleaved'
run 2 "$tandem" train gpt.yaml -q -n 2 --parallel pipeline=2 --set parallel.zero=2
has 'have the params that they update; use 1'
echo "test_pipeline: passed"
