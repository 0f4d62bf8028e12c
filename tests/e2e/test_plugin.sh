#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The plug-in of examples/10_plugin.c in a job: layer, loss, metric, map function, gradient hook and
# sync rule; what plug-ins are refused, and from where they are never loaded.
. "$(dirname "$0")/lib.sh"
[ -f "$build/examples/10_plugin.so" ] || fail "the example is not built"
cp "$build/examples/10_plugin.so" mine.so

python3 - <<'PY'
import random
random.seed(3)
with open("t.csv", "w") as f:
    f.write("a,b,y\n")
    for _ in range(160):
        a, b = random.uniform(-2, 2), random.uniform(-2, 2)
        f.write(f"{a:.4f},{b:.4f},{a * a - b:.4f}\n")
PY
cat >job.yaml <<'YAML'
name: own
plugin: {files: mine.so, loss: log_cosh, metrics: [off], maps: [with_square]}
model: [{linear: 16}, {plugin: swish, with: [beta=1.5]}, {linear: 1}]
data: {source: csv, train: t.csv, label: y, target: number, split: {valid: 0.2}}
train: {batch: 16, epochs: 4, micro_batches: 4, optimizer: {name: adam, lr: 0.01}}
log: {tensorboard: false, report: false}
YAML
run 0 "$tandem" check job.yaml
run 0 "$tandem" train job.yaml --run-dir one
want=$(digest)
grep -q '"off":' one/metrics.jsonl || fail "no own metric in $(tail -n 1 one/metrics.jsonl)"
run 0 "$tandem" train job.yaml --run-dir two -n 2
same "two ranks"
"$tandem" inspect one 2>/dev/null | grep -q 'plugin1.scale' || fail "no param of the layer"
# The loss is mean log cosh of the model's own output, the layer and the map are as they say.
mkdir runs && cp -r one runs/own-0001
run 0 "$tandem" predict job.yaml --part valid -o p.csv
[ "$(grep -c . p.csv)" = 33 ] || fail "predictions: $(grep -c . p.csv) lines"
run 0 "$tandem" train job.yaml --run-dir linear --set 'plugin={files: mine.so}' \
    --set 'model=[{linear: 1}]'
[ "$(digest)" != "$want" ] || fail "the plug-in changes nothing"

# A gradient hook that clips nothing is the sum over ranks: near the exact rule, on every rank the
# same. The rule that averages has params of its own between meetings.
run 0 "$tandem" train job.yaml --run-dir hook -n 2 --set plugin.sync=clipped
python3 - one hook <<'PY' || fail "the gradient hook"
import json, sys
def losses(run):
    rows = [json.loads(l) for l in open(f"{run}/metrics.jsonl")]
    return [r.get("metrics", r)["loss"] for r in rows if r["kind"] in ("step", "eval")]
a, b = losses(sys.argv[1]), losses(sys.argv[2])
assert len(a) == len(b) > 30, (len(a), len(b))
assert max(abs(x - y) / abs(x) for x, y in zip(a, b)) < 1e-3
assert a[-1] < 0.5 * a[0], (a[0], a[-1])
PY
run 0 "$tandem" train job.yaml --run-dir rule -n 2 --set plugin.sync=averaging
mine=$(digest)
[ "$mine" != "$want" ] || fail "averaging every 4 steps gave the bits of one rank"
run 0 "$tandem" train job.yaml --run-dir again -n 2 --set plugin.sync=averaging
[ "$(digest)" = "$mine" ] || fail "averaging: another digest the second time"

# Never from a run's copy, whichever way it is named.
for what in "--resume=one --set train.epochs=5" "one/job.yaml --run-dir x"; do
    # shellcheck disable=SC2086 # words
    run 2 "$tandem" train $what
    has 'only from a job file that is named on the command line'
done
run 2 "$tandem" predict one -o p.csv
has 'only from a job file that is named on the command line'
# A folder that somebody has sent, with what it names beside it, and without what a run writes.
cp -r one sent && cp mine.so t.csv sent && rm sent/metrics.jsonl
for what in "predict sent -o p.csv" "train --resume=sent --set train.epochs=5" \
    "predict sent/checkpoints -o p.csv"; do
    # shellcheck disable=SC2086 # words
    run 2 "$tandem" $what
    has 'only from a job file that is named on the command line'
done
run 0 "$tandem" train job.yaml --resume=one --set train.epochs=5

wrong() { # TEXT ARGUMENTS...
    local text=$1; shift
    run 2 "$tandem" check job.yaml "$@"
    [ "$(grep -c . out)" = 1 ] || fail "more than a line"
    has "$text"
}
cc -shared -fPIC -x c - -o empty.so <<<'int nothing;' || fail "cc"
cc -shared -fPIC -I "$source/include" -x c - -o old.so <<'C' || fail "cc"
#include <tandem/plugin.h>
const td_plugin *td_plugin_get(void)
{
    static const td_plugin P = {.abi = 99, .size = sizeof P, .name = "old"};
    return &P;
}
C
table() { # NAME FIELDS: a plug-in with these lists
    cc -shared -fPIC -I "$source/include" -x c - -o "$1.so" <<C || fail "cc"
#include <tandem/plugin.h>
static const td_plugin_layer L[] = {{"swish", "", NULL}};
static const td_plugin_map M[] = {{NULL, NULL, NULL, NULL}};
const td_plugin *td_plugin_get(void)
{
    static const td_plugin P = {TD_PLUGIN_HEAD, .name = "$1", $2};
    (void)L, (void)M;
    return &P;
}
C
}
table no_list '.n_layers = 2'
table no_function '.layers = L, .n_layers = 1'
table no_name '.maps = M, .n_maps = 1'
table negative '.layers = L, .n_layers = -1'
wrong 'n_layers is not the number of its layers' --set plugin.files=[no_list.so]
wrong 'one of its layers has no name, or no build' --set plugin.files=[no_function.so]
wrong 'one of its maps has no name, or no apply' --set plugin.files=[no_name.so]
wrong 'n_layers is not the number of its layers' --set plugin.files=[negative.so]
# Structs grow: a list is walked by the size that the plug-in gives. One of a later version, and one
# without sizes.
sed 's/TD_PLUGIN_HEAD,/TD_PLUGIN_HEAD, SIZES/' "$source/examples/10_plugin.c" >sizes.c
sized() { # NAME SIZES
    cc -shared -fPIC -Wno-override-init -I "$source/include" "-DSIZES=$2" sizes.c -o "$1.so" ||
        fail "cc"
}
sized later '.sync_size = sizeof(td_plugin_sync) + 8,'
sized later_all '.size = sizeof(td_plugin) + 8,'
sized sizeless '.layer_size = 0,'
wrong 'later.so: was built for a later version' --set plugin.files=[later.so]
wrong 'later_all.so: was built for a later version' --set plugin.files=[later_all.so]
wrong 'layer_size is not set: begin the td_plugin with TD_PLUGIN_HEAD' \
    --set plugin.files=[sizeless.so]
head -c 3000 mine.so >half.so
mkfifo pipe.so
wrong 'half.so is not whole' --set plugin.files=[half.so]
wrong 'pipe.so is not a regular file' --set plugin.files=[pipe.so]
wrong 'no td_plugin_get' --set plugin.files=[empty.so]
wrong 'version 99 of the interface' --set plugin.files=[old.so]
wrong 'cannot open shared object' --set plugin.files=[nosuch.so]
wrong '\]: plugin.files: at most 8 are possible' \
    --set "plugin.files=[$(yes mine.so | head -n 9 | paste -sd,)]"
wrong 'no plug-in has a loss nosuch' --set plugin.loss=nosuch
wrong 'no plug-in has a metric nosuch' --set plugin.metrics=[nosuch]
wrong 'no plug-in has a map nosuch' --set plugin.maps=[nosuch]
wrong 'no plug-in has a sync rule nosuch' --set plugin.sync=nosuch
wrong 'no plug-in has a layer nosuch' --set 'model=[{plugin: nosuch}, {linear: 1}]'
wrong 'with: expected' --set 'model=[{plugin: swish, with: [beta]}, {linear: 1}]'
wrong 'with_square: expected rows' --set plugin.maps=[with_square] --set data.window=3
