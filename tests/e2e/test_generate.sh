#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tandem generate`: a small model learns a sentence by heart and goes on with it, without the text
# that it was trained on; the same seed gives the same text.
. "$(dirname "$0")/lib.sh"

for _ in {1..60}; do echo "the cat sat on the mat, ça va."; done >cat.txt
cat >job.yaml <<'YAML'
name: cat
model: {name: gpt2, layers: 1, heads: 2, width: 32}
data: {source: text, train: cat.txt, context: 16, stride: 4}
train: {batch: 16, steps: 200, optimizer: {name: adamw, lr: 0.01}, eval: {every: never}}
log: {tensorboard: false, report: false}
YAML
run 0 "$tandem" train job.yaml --run-dir run
mv cat.txt gone.txt
run 0 "$tandem" generate run --prompt "the cat sat" --length 13 --temperature 0
[ "$(cat out)" = "the cat sat on the mat, " ] || fail "went on otherwise"
text() { run 0 "$tandem" generate run -p "the " --length 60 --temperature 3 "$@"; cat out; }
first=$(text --seed 1)
[ "$first" = "$(text --seed 1)" ] || fail "the same seed, another text"
[ "$first" = "$(text --seed 1 --threads 2)" ] || fail "more threads, another text"
[ "$first" != "$(text --seed 2)" ] || fail "another seed, the same text"
[ "$(text --top-k 1)" = "$(text --top-k 1 --seed 5)" ] || fail "among one there is no choice"
run 0 "$tandem" generate run --length 5

# Bytes, and what cannot be.
mv gone.txt cat.txt
run 0 "$tandem" train job.yaml --run-dir bytes --set data.unit=byte --set train.steps=150
run 0 "$tandem" generate bytes --prompt "the cat" --temperature 0 --length 8
has 'the cat s'
run 2 "$tandem" generate run --prompt "QUIZ"
has "prompt: the character 'Q' does not occur in the text that the model was trained on"
run 2 "$tandem" generate run --temperature hot
has "temperature: expected a number from 0 to 100, found 'hot'"
run 2 "$tandem" generate run --length 0
run 2 "$tandem" generate nosuch
# Token ids in, token ids out: a cycle of seven of them is learnt by heart.
python3 - <<'PY'
import struct
tokens = [300 + i % 7 for i in range(1400)]
for name in ('c_train', 'c_val'):
    with open(name + '.bin', 'wb') as f:
        f.write(struct.pack('<256i', 20240520, 1, len(tokens), *[0] * 253))
        f.write(struct.pack(f'<{len(tokens)}H', *tokens))
PY
run 0 "$tandem" train job.yaml --run-dir ids --set data.source=tokens --set data.train=c_train.bin \
    --set data.valid=c_val.bin --set data.vocab=310
rm c_train.bin c_val.bin
run 0 "$tandem" generate ids --prompt "300 301, 302" --temperature 0 --length 9
[ "$(cat out)" = "300 301, 302 303 304 305 306 300 301 302 303 304" ] || fail "other ids"
run 2 "$tandem" generate ids
has 'this model was trained on token ids .*: begin with some'
for prompt in '3 310' '3 -1' '3 x' '3.5' '99999999999999999999'; do
    run 2 "$tandem" generate ids --prompt "$prompt"
    has 'prompt: expected the ids of tokens, 0 to 309, found'
done
cat >digits.yaml <<'YAML'
name: digits
model: [flatten, linear]
data: {source: digits, count: 64}
train: {batch: 16, steps: 2}
log: {tensorboard: false, report: false}
YAML
run 0 "$tandem" train digits.yaml --run-dir digits
run 2 "$tandem" generate digits
has 'this model was trained on digits data; text needs a model trained with data.source: text, or'
