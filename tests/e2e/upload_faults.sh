# SPDX-License-Identifier: Apache-2.0
# faults KIND: that part of upload_faults.py, in a folder of its own.
# shellcheck shell=bash disable=SC2154 # variables are the script's
"$tandem" help serve >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }
export TD_BUILD=$build PYTHONDONTWRITEBYTECODE=1
cat >"$mark" <<'EOF'
name: up
model:
  - flatten
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 1500, split: {valid: 0.1}}
train: {batch: 16, steps: 100, micro_batches: 4, optimizer: {name: adamw, lr: 0.002}}
checkpoint: {every: 1, keep: 2}
EOF
run 0 "$tandem" train "$mark" -q --run-dir whole --set checkpoint.every=end
want=$(digest)
faults() {
    mkdir "$1"
    cp "$mark" "$1"
    limited python3 "$source/tests/e2e/upload_faults.py" "$1" "$1" "${want#sha256:}" >out 2>&1 ||
        fail "$1"
}
