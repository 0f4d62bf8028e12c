#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# data.blocks: samples that are kept as blocks in device memory, pinned memory and a file. Digests
# are those without it, on cpu, far and the emulated GPU, with levels so small that blocks move
# between all of them, on one rank, several, with threads, a pipeline, a resumed run; the hits are
# in the summary, metrics.jsonl and the report; a folder that takes no file is a warning; what does
# not go together is one line.
. "$(dirname "$0")/lib.sh"

cat >mlp.yaml <<'YAML'
name: mlp
model: [flatten, {linear: 16}, relu, linear]
data: {source: digits, count: 300, split: {valid: 0.1}, prefetch: 1}
train: {batch: 16, epochs: 5, micro_batches: 4, optimizer: {name: adam, lr: 0.01}}
YAML
cat >cnn.yaml <<'YAML'
name: cnn
model: [{conv2d: 4, kernel: 3, stride: 2}, batch_norm, relu, flatten, {dropout: 0.25}, linear]
data: {source: digits, count: 167, split: {valid: 0.1}, prefetch: 1}
train: {batch: 16, epochs: 4, micro_batches: 4, optimizer: {name: adam, lr: 0.01}}
YAML
blocks=(--set data.blocks.device_mb=0.1 --set data.blocks.host_mb=0.3
    --set data.blocks.file_mb=0.15)
train() {
    rm -rf run
    run 0 "$tandem" train "$@" --run-dir run --set log.tensorboard=false
}
# kept WHAT FLAGS...: the digest is $want, and blocks were found in every level
kept() {
    local what=$1 level
    shift
    train "$@" "${blocks[@]}"
    same "$what"
    for level in device host file; do
        grep -q "\"samples_${level}_hits\": [1-9]" run/metrics.jsonl || fail "$what: none in $level"
    done
    for level in device host; do
        grep -q "\"samples_${level}_evicted\": [1-9]" run/metrics.jsonl || fail "$what: $level"
    done
}

emulated=$build/tests/libemulated_cuda.so
for job in mlp cnn; do
    for backend in cpu far cuda; do
        if [ $backend = cuda ]; then
            if [ ! -e "$emulated" ]; then
                echo "skipped for cuda: this build has no CUDA, so there is no emulated GPU"
                continue
            fi
            export TANDEM_CUDA_DRIVER=$emulated TANDEM_CUDA_LIBS=none
        fi
        train $job.yaml --set train.backend=$backend
        want=$(digest)
        kept "$job on $backend" $job.yaml --set train.backend=$backend
    done
    unset TANDEM_CUDA_DRIVER TANDEM_CUDA_LIBS
done
has '^  samples  .* % from device memory, .* % from pinned memory, .* % from the file, '
grep -q 'samples kept, file level' run/report.html || fail "the report has no hits"

train mlp.yaml
want=$(digest)
far=(--set train.backend=far)
kept "no prefetching" mlp.yaml "${far[@]}" --set data.threads=0
kept "threads" mlp.yaml "${far[@]}" --set data.threads=3 --threads 2
kept "ranks" mlp.yaml "${far[@]}" -n 2
kept "a pipeline" mlp.yaml "${far[@]}" -n 2 --parallel pipeline=2
rm -rf run
run 0 "$tandem" train mlp.yaml --run-dir run "${far[@]}" --set train.steps=40 \
    --set checkpoint.every=20 "${blocks[@]}"
run 0 "$tandem" train mlp.yaml --run-dir run "${far[@]}" --resume --set checkpoint.every=20 \
    --set data.blocks.host_mb=1
same "resumed with other levels"
# All samples fit: each is prepared once.
train mlp.yaml "${far[@]}" --set data.blocks.host_mb=4 --set data.blocks.device_mb=4
same "all on the device"
grep -q '"samples_prepared": 300,' run/metrics.jsonl || fail "samples were prepared again"

# A file that cannot be made.
rm -rf run
TMPDIR=$PWD/none run 0 "$tandem" train mlp.yaml --run-dir run "${blocks[@]}"
same "no folder for the file"
told='data.blocks: no file in .*/none: No such file or directory; going on without it'
[ "$(grep -c "$told" out)" = 1 ] || fail "not one warning"

# Who trains nothing keeps nothing: no level is made.
(
    export TMPDIR=$PWD/none
    run 0 "$tandem" predict run --part valid -o kept.npy
    ! grep -q data.blocks out || fail "a prediction has levels"
    run 0 "$tandem" check mlp.yaml "${blocks[@]}"
    ! grep -q 'no file in' out || fail "a check has levels"
) || exit 1

# refused FLAGS... TEXT
refused() {
    local text=${*: -1}
    rm -rf no
    run 2 "$tandem" train mlp.yaml --run-dir no "${@:1:$#-1}"
    [ "$(wc -l <out)" = 1 ] || fail "more than one line"
    has "$text"
    [ ! -e no ] || fail "a run's directory was made"
}
refused --set data.blocks.device_mb=1 'data.blocks: device_mb and file_mb need host_mb'
refused --set data.blocks.host_mb=0.0001 \
    'data.blocks.host_mb: a block has [0-9]* bytes, and there is room for 104'
refused --set data.blocks.host_mb=-1 'data.blocks.host_mb'
refused --set data.blocks.host_mb=1 --set 'data.maps=[{crop: 12}]' \
    'samples that change every epoch'
