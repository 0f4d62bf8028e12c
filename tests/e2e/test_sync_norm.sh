#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# batch_norm with sync: true normalizes the whole batch: the losses of one micro-batch, however many
# there are, and the same weights on any number of ranks and threads, short last batches included;
# each batch of an accumulated step, with targets that do not count as well.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'YAML'
name: norms
model:
  - {conv2d: 4, kernel: 3, padding: same}
  - {batch_norm: {sync: true}}
  - relu
  - flatten
  - {linear: 12}
  - {batch_norm: {sync: true, act: relu}}
  - linear
data: {source: digits, count: 150, noise: 0.2, split: {valid: 0.2}}
train: {batch: 32, epochs: 3, micro_batches: 8, optimizer: {name: sgd, lr: 0.1}}
log: {tensorboard: false, report: false}
YAML
sed 's/sync: true, *//; s/{batch_norm: {sync: true}}/batch_norm/' job.yaml >plain.yaml
grep -q sync plain.yaml && fail "the plain job"
run 0 "$tandem" train job.yaml --run-dir one --threads 1
want=$(digest)
for ranks in 2 3; do
    run 0 "$tandem" train job.yaml --run-dir "n$ranks" -n "$ranks"
    same "$ranks ranks"
done
run 0 "$tandem" train job.yaml --run-dir threads --threads 2
same "two threads"
run 0 "$tandem" train job.yaml --run-dir tcp -n 2 --set parallel.transport=tcp
same "tcp"
for ranks in 2 3; do
    run 0 "$tandem" train job.yaml --run-dir "zero$ranks" -n "$ranks" --set parallel.zero=1
    same "optimizer state in shards on $ranks ranks"
done
# Compressed gradients have bits of their own: the same ones by any way.
run 0 "$tandem" train job.yaml --run-dir bf16 -n 2 --threads 1 --set parallel.compress=bf16
compressed=$(digest)
run 0 "$tandem" train job.yaml --run-dir bf16tcp -n 2 --threads 2 --set parallel.compress=bf16 \
    --set parallel.transport=tcp
[ "$(digest)" = "$compressed" ] && [ "$compressed" != "$want" ] || fail "compressed gradients"
# More ranks than micro-batches that have rows: one only takes part in the exchange.
run 0 "$tandem" train job.yaml --run-dir idle -n 3 --set train.micro_batches=2
few=$(digest)
run 0 "$tandem" train job.yaml --run-dir few --set train.micro_batches=2
[ "$(digest)" = "$few" ] || fail "an idle rank: another digest than that of one rank"
# A slow rank gets fewer micro-batches; the other one no more than its thread can hold at once.
for count in 96 128; do
    slow=(--set "train.batch=$count" --set "train.micro_batches=$count" --set train.epochs=20)
    run 0 "$tandem" train job.yaml --run-dir "even$count" "${slow[@]}" --threads 2
    even=$(digest)
    TANDEM_LOG=debug run 0 "$tandem" train job.yaml --run-dir "slow$count" "${slow[@]}" -n 2 \
        --threads 1 --faults 'slow rank=1 times=20'
    [ "$(digest)" = "$even" ] || fail "a slow rank: another digest than that of one rank"
    [ "$count" = 128 ] || has 'rank 0: 64 of 96 micro-batches'
done

# Accumulated batches, of which ranks have one, part of one, or parts of two; the last step of an
# epoch has a single one. Targets that do not count, so that in some micro-batches none does.
runs=0
for extra in accumulate=3 ignore accumulate=2,ignore; do
    more=(--set train.micro_batches=16)
    case $extra in accumulate*) more+=(--set "train.${extra%,*}") ;; esac
    case $extra in *ignore) more+=(--set loss.ignore=3) ;; esac
    run 0 "$tandem" train job.yaml --run-dir "$extra" --threads 1 "${more[@]}"
    alone=$(digest)
    [ "$alone" != "$want" ] || fail "$extra: nothing has changed"
    for how in '-n 2' '-n 3' '-n 2 --threads 2 --set parallel.transport=tcp' \
        '-n 3 --set parallel.zero=1' '--threads 2'; do
        # shellcheck disable=SC2086 # several words
        run 0 "$tandem" train job.yaml --run-dir "on$((++runs))" $how "${more[@]}"
        [ "$(digest)" = "$alone" ] || fail "$extra $how: another digest than that of one rank"
    done
    run 0 "$tandem" train plain.yaml --run-dir "$extra-whole" "${more[@]}" \
        --set train.micro_batches=1
done

# Killed and resumed: the same end.
run 0 "$tandem" train job.yaml --run-dir half --set train.epochs=1
run 0 "$tandem" train --resume=half --set train.epochs=3 -n 2
same "resumed on two ranks"

# The whole batch is one micro-batch of a plain batch norm: the same losses, up to rounding; and not
# those of 8 micro-batches. Running averages too: validation.
run 0 "$tandem" train plain.yaml --run-dir whole --set train.micro_batches=1
run 0 "$tandem" train plain.yaml --run-dir cut
python3 - <<'PY' || fail "losses"
import json
def losses(run, kinds=("step", "eval")):
    rows = [json.loads(l) for l in open(f"{run}/metrics.jsonl")]
    return [r.get("metrics", r)["loss"] for r in rows if r["kind"] in kinds]
for name, other in [("one", "whole")] + [
    (n, n + "-whole") for n in ("accumulate=3", "ignore", "accumulate=2,ignore")
]:
    # Plain ones weigh the running averages of accumulated batches by the targets that count.
    kinds = ("step",) if name == "accumulate=2,ignore" else ("step", "eval")
    one, whole = losses(name, kinds), losses(other, kinds)
    assert len(one) == len(whole) > 5, (name, len(one), len(whole))
    off = max(abs(a - b) / abs(b) for a, b in zip(one, whole))
    assert off < 2e-4, (name, off)
whole, cut = losses("whole"), losses("cut")
assert max(abs(a - b) / abs(b) for a, b in zip(cut, whole)) > 1e-2
PY
# Trained so, it is an ordinary batch norm for whoever uses it.
run 0 "$tandem" predict one -o p.csv
run 0 "$tandem" export one --python model.py
grep -q 'F.batch_norm' model.py || fail "export"

# Micro-batches of one row are fine with it, and refused without.
run 0 "$tandem" train job.yaml --run-dir rows --set train.micro_batches=32 --set train.epochs=1 \
    --threads 2
run 2 "$tandem" train plain.yaml --run-dir bad --set train.micro_batches=32
has 'micro-batches of one row'
wrong() { # TEXT ARGUMENTS...
    local text=$1; shift
    run 2 "$tandem" train job.yaml --run-dir wrong "$@"
    has "$text"
}
wrong 'cannot be combined with ma' -n 2 --sync ma
wrong 'cannot be combined with parallel.zero above 1' -n 2 --set parallel.zero=2
wrong 'cannot be combined with parallel.pipeline' -n 2 --parallel pipeline=2
wrong 'at most 64 are possible' --threads 1 --set train.batch=96 --set train.micro_batches=96
