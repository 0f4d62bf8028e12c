# SPDX-License-Identifier: Apache-2.0
# continues_elsewhere URL FOLDER: a run uploads every checkpoint to URL, is interrupted, is
# continued elsewhere from the URL alone, and ends as one that was not. FOLDER: where the objects
# can be seen; empty if they cannot.
# shellcheck shell=bash disable=SC2034,SC2154 # variables are the script's
cat >job.yaml <<'EOF'
name: up
model:
  - flatten
  - {linear: 32, act: relu}
  - linear
data: {source: digits, count: 1500, split: {valid: 0.1}}
train: {batch: 16, epochs: 2, optimizer: {name: adamw, lr: 0.002}}
checkpoint: {every: 1, keep: 2}
EOF
digest() { sed -n 's/.*\(sha256:[0-9a-f]*\).*/\1/p' "$1"; }

continues_elsewhere() {
    local url=$1 folder=$2 pid
    "$tandem" train job.yaml -q --run-dir whole --set checkpoint.every=end >out 2>&1 ||
        fail "the undisturbed run"
    local want
    want=$(digest out)
    "$tandem" train job.yaml -q --run-dir first --set "checkpoint.upload=$url" >out 2>&1 &
    pid=$!
    soon grep -qs '"step": 20,' first/metrics.jsonl || fail "no steps"
    kill -TERM $pid
    wait $pid
    [ $? = 130 ] || fail "interrupted"
    if [ -n "$folder" ]; then
        local n
        n=$(find "$folder" -name state.json | wc -l)
        [ "$n" -ge 1 ] && [ "$n" -le 3 ] || fail "$n checkpoints are kept"
        [ -e "$folder/$(cat "$folder/latest")/state.json" ] || fail "latest is not whole"
    fi
    [ ! -e first/.upload ] || fail "links are left"
    mkdir second
    (cd second && "$tandem" train "--resume=$url" -q --set checkpoint.every=end) >out 2>&1 ||
        fail "continue elsewhere"
    [ "$(digest out)" = "$want" ] || fail "another digest: $(digest out), not $want"
    if [ -n "$folder" ]; then # two, and the best
        n=$(find "$folder" -name state.json | wc -l)
        [ "$n" -le 3 ] || fail "$n checkpoints are kept after the run went on"
    fi
    # A finished run has the best one too; what is damaged here is fetched again.
    local kept=second/runs/${url##*/}/checkpoints name
    mkdir best
    printf x >>"$kept/$(cat "$kept/latest")/model.safetensors"
    for kept in best second; do
        (cd "$kept" && "$tandem" train "--resume=$url" -q) >out 2>&1 || fail "$kept: fetch again"
        kept=$kept/runs/${url##*/}/checkpoints
        for name in latest best; do
            [ -e "$kept/$(cat "$kept/$name")/state.json" ] || fail "$kept: $name is not there"
        done
    done
    digest out | grep -q "$want" || fail "repaired, it is another: $(digest out)"
}
