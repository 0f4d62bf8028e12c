#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A job trained through the installed shared library, from Python by ctypes, ends with the digest of
# the command: alone, and as two ranks under `tandem launch`, elastic too; and both write the same
# files.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "python3 is not there" >&2; exit 77; }

run 0 cmake --install "$build" --prefix "$dir/tree"
library=$(find "$dir/tree" -name libtandem.so)
tandem=$dir/tree/bin/tandem
cat >job.yaml <<YAML
name: small
model: [flatten, {linear: 32, act: relu}, {dropout: 0.1}, linear]
data: {source: digits, count: 600, split: {valid: 0.1, test: 0.2}}
train: {batch: 40, epochs: 2, optimizer: {name: adamw, lr: 0.003}, schedule: cosine}
YAML
api=(python3 "$source/tests/e2e/api_train.py" "$library" job.yaml)

# The structs as Python has them are those of the headers.
"${api[@]::2}" --sizes >sizes.python || fail "no sizes"
{ echo '#include <stdio.h>'; echo '#include <tandem/tandem.h>'; echo 'int main(void) {'
    sed 's/ .*//; s/.*/printf("& %zu\\n", sizeof(&));/' sizes.python; echo '}'; } >sizes.c
cc -I "$dir/tree/include" -o sizes sizes.c && ./sizes >sizes.c.txt || fail "sizes.c"
diff sizes.python sizes.c.txt || fail "structs of api_train.py (<) are not those of C (>)"

run 0 "$tandem" train job.yaml --quiet --run-dir command
digest=$(sed -n 's/.*digest sha256:\([0-9a-f]*\).*/\1/p' out)
[ ${#digest} = 64 ] || fail "no digest"

run 0 "${api[@]}" api
read -r got steps _ <out
[ "$got" = "$digest" ] || fail "one rank: $got, the command: $digest"
[ "$steps" -gt 10 ] || fail "the callback heard of $steps steps"
diff <(cd command && find . -type f ! -name 'events*' | sort) \
    <(cd api && find . -type f ! -name 'events*' | sort) || fail "other files"
cmp command/checkpoints/"$(cat command/checkpoints/latest)"/model.safetensors \
    api/checkpoints/"$(cat api/checkpoints/latest)"/model.safetensors || fail "other weights"

run 0 "$tandem" launch -n 2 "${api[@]}" ranks
grep -q "$digest $steps" out || fail "two ranks: $(cat out), the command: $digest"
run 0 "$tandem" train job.yaml --quiet --run-dir both -n 2
grep -q "$digest" out || fail "the command on two ranks: $(cat out)"

# What a program does on its own, before a run and after it, is not a rank that hangs.
API_TRAIN_PAUSE=3 run 0 "$tandem" launch -n 2 --hang 2s "${api[@]}" alone
grep -q "$digest $steps" out || fail "with pauses: $(cat out), the command: $digest"

# Elastic ranks are members of a launch in the same way.
run 0 "$tandem" launch -n 2 --elastic --framework tandem "${api[@]}" "$dir/elastic"
grep -q "$digest $steps" out || fail "elastic ranks: $(cat out), the command: $digest"

# Each holds shards or stages of the weights: the last checkpoint has all of them.
run 0 "$tandem" launch -n 2 --elastic --framework tandem "${api[@]}" "$dir/zero" parallel.zero=3
grep -q "$digest $steps" out || fail "elastic ranks with shards: $(cat out), the command: $digest"
run 0 "$tandem" launch -n 2 --elastic --framework tandem "${api[@]}" "$dir/stages" \
    parallel.pipeline=2
grep -q "$digest $steps" out || fail "elastic ranks with stages: $(cat out), the command: $digest"
last=command/checkpoints/$(cat command/checkpoints/latest)
for kept in elastic zero stages; do
    cmp "$dir/$kept.safetensors" "$last/model.safetensors" || fail "$kept: other weights are saved"
done

# What is wrong is one line that says where.
run 1 "${api[@]}" bad train.bach=3
has 'train.bach: unknown key'
run 1 "${api[@]}" api
has 'already has a run'
