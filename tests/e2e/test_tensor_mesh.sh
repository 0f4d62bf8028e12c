#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow full
# Meshes of three axes: data x pipeline x tensor with parallel.tensor_pieces have the digest of one
# rank, with every schedule that empties the pipeline, over shared memory and TCP, on the device
# far, with ZeRO 1 along data; checkpoints move between meshes; compression on the data axis; a
# rank that is killed; what cannot be combined.
. "$(dirname "$0")/lib.sh"

cat >mlp.yaml <<'JOB'
name: mlp
model:
  - flatten
  - {linear: 64, act: relu}
  - {linear: 48, act: gelu}
  - dropout: 0.1
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 200, split: {valid: 0.1}}
train: {batch: 64, epochs: 1, micro_batches: 8, clip: 1, optimizer: {name: adamw, lr: 0.002}}
parallel: {tensor_pieces: 4}
JOB
cat >cnn.yaml <<'JOB'
name: cnn
model:
  - {conv2d: 32, kernel: 3, act: relu}
  - {conv2d: 16, kernel: 3, stride: 2, act: relu}
  - batch_norm
  - {conv2d: 32, kernel: 3, stride: 2}
  - max_pool: 2
  - flatten
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 120, split: {valid: 0.1}}
train: {batch: 30, epochs: 1, micro_batches: 6, accumulate: 2, clip: 1, optimizer: sgd}
parallel: {tensor_pieces: 2}
JOB
python3 -c '
for i in range(300):
    print("".join(chr(33 + (i * 31 + k * k * 7) % 94) for k in range(40)), i)' >text.txt
cat >gpt.yaml <<'JOB'
name: gpt
model: {name: gpt2, layers: 2, heads: 4, width: 64, dropout: 0.1}
data: {source: text, train: text.txt, context: 16, stride: 64, split: {valid: 0.05}}
train:
  {batch: 16, steps: 6, micro_batches: 4, clip: 1, precision: bf16, optimizer: adamw,
   eval: {every: 3}}
parallel: {tensor_pieces: 4}
JOB

# cell JOB RANKS AXES [OPTIONS...]
cell() {
    local job=$1 ranks=$2 axes=$3
    shift 3
    run 0 "$tandem" train "$job.yaml" -q -n "$ranks" --parallel "$axes" "$@"
    same "$job on $ranks ranks, $axes $*"
}

for job in mlp cnn gpt; do
    run 0 "$tandem" train $job.yaml -q
    want=$(digest)
    [ -n "$want" ] || fail "no digest"
    cell $job 4 pipeline=2,tensor=2
    cell $job 8 data=2,pipeline=2,tensor=2 --set parallel.transport=tcp
    if [ -n "${TD_TEST_FULL:-}" ]; then
        for schedule in gpipe 1f1b interleaved zb-h1 zb-v dualpipe-v; do
            for transport in shm tcp; do
                cell $job 4 pipeline=2,tensor=2 --set parallel.schedule=$schedule \
                    --set parallel.transport=$transport
                cell $job 8 data=2,pipeline=2,tensor=2 --set parallel.schedule=$schedule \
                    --set parallel.transport=$transport
            done
        done
        cell $job 8 data=2,pipeline=2,tensor=2 --set train.backend=far
        cell $job 8 data=4,tensor=2 --set parallel.zero=1
    fi
done

# Of the GPT, whose tied table is in pieces on the first and the last stage.
cell gpt 8 pipeline=2,tensor=4
cell gpt 4 pipeline=2,tensor=2 --set parallel.schedule=zb-v
cell gpt 4 pipeline=2,tensor=2 --set train.backend=far
cell gpt 2 pipeline=2
cell gpt 8 data=2,pipeline=2,tensor=2 --set parallel.zero=1
cell gpt 4 data=2,tensor=2 --set parallel.zero=1 --set parallel.transport=tcp
cell gpt 2 data=2 --set parallel.zero=1
cell gpt 4 pipeline=2,tensor=2 --set parallel.update=in-order

# Elastic ranks compute in pieces, too, and may be lost with theirs: in as many ranks as there are,
# in whichever arrangement. Nothing is read from disk.
lost() {
    cell "$@"
    has 'was killed by signal 9'
    ! grep -q 'goes back to step' out || fail "$*: state was lost"
}
lost gpt 4 data=2,pipeline=2 --elastic --faults "kill rank=3 at=step:3"
lost gpt 4 data=2,tensor=2 --elastic --faults "kill rank=1 at=step:3:comm:5"
lost gpt 4 data=2,tensor=2 --elastic --set parallel.transport=tcp --faults "kill rank=2 at=step:4"
lost gpt 2 data=2 --elastic --set parallel.zero=1 --faults "kill rank=1 at=step:3"
lost gpt 2 tensor=2 --elastic --faults "kill rank=0 at=step:2:comm:3"
of_gpt=$want
run 0 "$tandem" train cnn.yaml -q
want=$(digest)
lost cnn 4 pipeline=2,tensor=2 --elastic --faults "kill rank=2 at=step:2:comm:9"
want=$of_gpt

# Checkpoints move between meshes.
run 0 "$tandem" train gpt.yaml -q -n 4 --parallel data=2,pipeline=2 --set train.steps=3 \
    --run-dir half
run 0 "$tandem" train gpt.yaml -q --resume=half -n 2 --parallel tensor=2
same "from data=2,pipeline=2 to tensor=2"
run 0 "$tandem" train gpt.yaml -q -n 8 --parallel data=2,pipeline=2,tensor=2 \
    --set train.steps=3 --set parallel.zero=1 --run-dir eight
run 0 "$tandem" train gpt.yaml -q --resume=eight -n 3
same "from data=2,pipeline=2,tensor=2 to three replicas"

# Gradients of replicas as bf16: element by element, so pieces decide nothing.
run 0 "$tandem" train gpt.yaml -q -n 2 --set parallel.compress=bf16
want=$(digest)
cell gpt 4 data=2,tensor=2 --set parallel.compress=bf16

run 1 "$tandem" train gpt.yaml -q -n 4 --parallel pipeline=2,tensor=2 \
    --faults "kill rank=3 at=step:3"
has 'rank 3'
dead || fail "processes are left"

run 0 "$tandem" check gpt.yaml -n 8 --parallel data=2,pipeline=2,tensor=2
has 'pipeline, data=2,pipeline=2,tensor=2, schedule 1f1b'
has 'transformer.h.1.ln_1 to transformer.wte'

# refused WORDS OPTIONS...
refused() {
    local words=$1
    shift
    run 2 "$tandem" train gpt.yaml -q "$@"
    has "$words"
    [ "$(wc -l <out)" = 1 ] || fail "more than one line"
}
refused 'needs a multiple of 6 ranks, and there are 8: use -n 12' -n 8 \
    --parallel pipeline=3,tensor=2
refused 'use 1, which has replicas share' -n 4 --parallel tensor=2 --set parallel.zero=2
refused 'use 1f1b' -n 4 --parallel pipeline=2,tensor=2 --set parallel.schedule=pipedream
refused 'use bf16, f16 or powersgd' -n 4 --parallel tensor=2 --set parallel.compress=topk \
    --set train.optimizer=sgd
refused 'use parallel.data alone' -n 4 --parallel tensor=2 --set parallel.backup=1
refused 'zero with parallel.tensor_pieces: ranks run one compute thread' -n 2 \
    --set parallel.zero=1 --threads 2
refused 'use parallel.data alone' -n 4 --parallel pipeline=2,tensor=2 --set train.verify=0.5
refused 'easgd cannot be combined with parallel.tensor' -n 4 --parallel tensor=2 --sync easgd

# Layers that the job places, with ranks that share each of them.
cat >placed.yaml <<'JOB'
name: placed
model:
  - flatten
  - {linear: 32, act: relu, place: 0}
  - {linear: 32, act: relu, place: 1}
  - linear
data: {source: digits, count: 100}
train: {batch: 20, steps: 4, micro_batches: 4}
parallel: {tensor_pieces: 2}
JOB
run 0 "$tandem" train placed.yaml -q
want=$(digest)
cell placed 4 pipeline=2,tensor=2
cell placed 8 data=2,pipeline=2,tensor=2
run 2 "$tandem" train placed.yaml -q -n 4 --parallel pipeline=2,tensor=2 \
    --set 'model=[flatten, {linear: 32, place: 1}, {linear: 32, place: 0}, linear]'
has "'linear2.weight' wants place 0 and needs 'linear1.weight' of place 1: .* circle"
run 2 "$tandem" train placed.yaml -q -n 4 --parallel pipeline=2,tensor=2 \
    --set 'model=[flatten, {linear: 32, place: 5}, linear]'
has "'linear1.weight' wants place 5, and stages are 0 to 1: use one of them"

# auto: tensor parallel ranks where stages alone do not fit, and only if the bits stay.
sed 's/layers: 2/layers: 1/; s/context: 16, stride: 64/context: 32, stride: 32/
    s/batch: 16, steps: 6, micro_batches: 4/batch: 512, steps: 1, micro_batches: 1/' \
    gpt.yaml >wide.yaml
run 0 "$tandem" check wide.yaml -n 4 --parallel auto:10GB
has 'parallel auto: data=4'
run 0 "$tandem" check wide.yaml -n 4 --parallel auto:41MB
has 'parallel auto: pipeline=2,tensor=2'
run 0 "$tandem" check wide.yaml -n 4 --parallel auto:41MB --set parallel.tensor_pieces=auto
has 'parallel auto: pipeline=4'
echo "test_tensor_mesh: passed"
