#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A build without oneDNN: the program needs no such library, says so, and trains; convolutions say
# in one line why they are slow, and the losses are those of a build with it.
. "$(dirname "$0")/lib.sh"

lean=$build/tests/tandem_without_onednn
if [ ! -e "$lean" ]; then
    lean=$tandem # this build has none itself
fi
if ldd "$lean" | grep -q dnnl; then
    fail "$lean needs libdnnl"
fi
run 0 "$lean" devices
has '^cpu .*, no oneDNN$'

# losses RUN: step by step
losses() { python3 -c '
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
print(*[r["loss"] for r in rows if "loss" in r and "step" in r])' "$1"; }
for job in "$source/examples/tabular.yaml" "$source/tests/dist/jobs/cnn.yaml"; do
    for program in "$tandem" "$lean"; do
        folder=run-$(basename "$program")
        rm -rf "$folder"
        run 0 "$program" train "$job" --run-dir "$folder" --set train.steps=6 \
            --set train.precision=f32 --set log.report=false --set log.tensorboard=false
    done
    case $job in
        *cnn*) has 'this build has no oneDNN: convolutions such as .* run on reference kernels' ;;
        *) if said 'no oneDNN'; then fail 'a job without convolutions names oneDNN'; fi ;;
    esac
    # shellcheck disable=SC2046
    python3 -c '
import sys
a, b = [float(x) for x in sys.argv[1].split()], [float(x) for x in sys.argv[2].split()]
assert len(a) == len(b) == 6, (a, b)
assert all(abs(x - y) <= 1e-4 * abs(x) for x, y in zip(a, b)), (a, b)' \
        "$(losses run-$(basename "$tandem"))" "$(losses run-$(basename "$lean"))" ||
        fail "other losses without oneDNN: $job"
done
