#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A service whose jobs run on nodes of a real Slurm that see slurm.dir, but not its own directory:
# metrics, checkpoints and artifacts of job files come back over HTTP, and a second attempt goes on
# where the first one was; what other programs leave in slurm.dir comes back from there.
. "$(dirname "$0")/real.sh"
. "$source/tests/e2e/serve.sh"
. "$source/tests/e2e/slurm.sh"
need_command curl
unshare -m true 2>/dev/null || skip "no mount namespaces here"
release() { service_gone; }
mkdir data
PATH=$build:$PATH # the batch job gets that of the service
slurm_up unshare -m --propagation private sh -c \
    "mount -t tmpfs none $dir/data && exec \"\$@\"" sh
config=$dir/service.yaml
echo "tracker: {default: slurm}
slurm: {dir: $dir/shared}" >service.yaml
http_port=$((16000 + $$ % 4000))
printf '%s\n' 'name: away' 'model: [flatten, {linear: 128}, relu, linear]' \
    'data: {source: digits, count: 20000}' 'train: {batch: 16, steps: 10000}' \
    'log: {every: 10}' >away.yaml # $mark
"$tandem" train away.yaml -q -j1 --run-dir alone >out 2>&1 || fail "alone"
alone=$(grep -o 'digest sha256:[0-9a-f]*' out)

serve first --set http.advertise="127.0.0.1:$http_port"
submit away.yaml
away=$job
await "$away" running
soon has_steps "$away" || fail "no metrics while it runs"
[ ! -e "data/jobs/$away/run" ] || fail "its directory is the service's"
"$tandem" pause -s "$server" "$away" >out 2>&1 || fail "pause"
await "$away" paused
[ -e "data/jobs/$away/checkpoints/latest" ] || fail "no checkpoint was brought"
"$tandem" resume -s "$server" "$away" >out 2>&1 || fail "resume"
await "$away" succeeded
[ "$(number attempt "$away")" = 2 ] || fail "not two attempts"
[ "$(digest "$away" 2)" = "$alone" ] || fail "another digest"
"$tandem" artifacts -s "$server" get "$away" model.safetensors >out 2>&1 || fail "get"
cmp -s model.safetensors "alone/checkpoints/$(cat alone/checkpoints/best)/model.safetensors" ||
    fail "other weights"

# A program that knows of files alone; the service is another one at its end.
program='[ ! -e '$dir'/data/jobs ] || exit 9
say() { echo "{\"kind\":\"step\",\"step\":$1}" >>$TANDEM_METRICS_FILE; }
say 1; say 2; mkdir -p $TANDEM_ARTIFACTS_DIR/sub; echo model >$TANDEM_ARTIFACTS_DIR/sub/m.bin
ln -s /etc/passwd $TANDEM_ARTIFACTS_DIR/link
while [ ! -e '$dir'/shared/go ]; do sleep 0.1; done; say 3'
submit --name plain -- sh -c "$program" # $mark
plain=$job
has_two() { [ "$(metrics "$plain" | grep -c step)" = 2 ]; }
soon has_two || fail "no metrics of a program while it runs"
ask "$server/v1/workers?job=$plain" >out
grep -q '"state":"running"' out && grep -q "\"host\":\"$(hostname)\"" out || fail "its worker"
crash
serve second --set http.advertise="127.0.0.1:$http_port"
touch shared/go
await "$plain" succeeded
[ "$(metrics "$plain" | grep -c step)" = 3 ] || fail "not all metrics of a program"
[ "$(artifacts "$plain")" = '"name":"sub/m.bin"' ] || fail "artifacts of a program"
"$tandem" artifacts -s "$server" get "$plain" sub/m.bin >out 2>&1 && grep -qx model m.bin ||
    fail "get of a program's"
end_service

# Nodes do not reach the service: what programs and runs leave in slurm.dir comes back all the same.
rm -f shared/go
serve third
submit --name still -- sh -c "$program"
plain=$job
soon has_two || fail "no metrics of a program without HTTP"
touch shared/go
await "$plain" succeeded
[ "$(metrics "$plain" | grep -c step)" = 3 ] || fail "not all metrics without HTTP"
[ "$(artifacts "$plain")" = '"name":"sub/m.bin"' ] || fail "artifacts of a program without HTTP"
end_service
serve fourth --set data.checkpoints="file://$dir/shared/checkpoints"
submit away.yaml
away=$job
await "$away" running
soon has_steps "$away" || fail "no metrics of a run without HTTP"
await "$away" succeeded
[ "$(digest "$away" 1)" = "$alone" ] || fail "another digest without HTTP"
artifacts "$away" | grep -q model.safetensors || fail "a run without HTTP is not published"
end_service
