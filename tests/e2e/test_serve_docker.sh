#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A service whose jobs are containers of a real engine: metrics while a job runs, the service killed
# and started again, a pause with the run going on at its step, artifacts at the end.
. "$(dirname "$0")/real.sh"
. "$source/tests/e2e/serve.sh"
need_root
need_command dockerd
need_command curl
sock=$dir/docker.sock
release() { service_gone; umount "$dir/exec/netns/default" 2>/dev/null; }
background dockerd --iptables=false --ip6tables=false --bridge=none --ip-forward=false \
    --ip-masq=false --storage-driver=overlay2 --exec-opt native.cgroupdriver=cgroupfs \
    --host "unix://$sock" --data-root "$dir/engine" --exec-root "$dir/exec" --pidfile "$dir/pid"
api() { curl -sS --max-time 60 --unix-socket "$sock" "$@"; }
ready api -f http://docker/_ping
"$source/tools/oci-image" "$build" --root image || fail "no files for an image"
tar -C image -c . | api -f -X POST -H 'Content-Type: application/x-tar' --data-binary @- \
    'http://docker/images/create?fromSrc=-&repo=tandem&tag=latest' >/dev/null || fail "no image"
rm -rf image
containers() { api 'http://docker/containers/json?all=1' | grep -o '"Id"' | wc -l; }
config=$dir/service.yaml
echo "tracker: {default: docker}
docker: {socket: $sock, network: host, pull: never}" >service.yaml
printf '%s\n' 'name: boxed' 'model: [flatten, {linear: 128}, relu, linear]' \
    'data: {source: digits, count: 20000}' 'train: {batch: 16, steps: 20000}' \
    'log: {every: 10}' >boxed.yaml

serve first
submit boxed.yaml
follow=$job
curl -sN --max-time 300 "$server/v1/jobs/$job/metrics?follow=1" >live &
follower=$!
soon grep -q '"kind": "step"' live || { metrics "$job" >out; fail "no metrics while it runs"; }
await "$job" running
crash
kill "$follower" 2>/dev/null
serve second
await "$job" running
[ "$(number attempt "$job")" = 1 ] || fail "another attempt"
[ "$(containers)" = 1 ] || fail "$(containers) containers"
"$tandem" pause -s "$server" "$job" >out 2>&1 || fail "pause"
await "$job" paused
"$tandem" resume -s "$server" "$job" >out 2>&1 || fail "resume"
await "$job" succeeded
[ "$(number attempt "$job")" = 2 ] || fail "not two attempts"
metrics "$job" >out
second=$(grep '"kind": "begin"' out | sed -n '2s/.*"step": \([0-9]*\),.*/\1/p')
[ "${second:-1}" -gt 1 ] || fail "the second attempt began at step ${second:-none}"
for name in model.safetensors metrics.jsonl job.yaml; do
    artifacts "$job" | grep -qF "\"$name\"" || { artifacts "$job" >out; fail "no artifact $name"; }
done
"$tandem" artifacts -s "$server" get "$job" model.safetensors >out 2>&1 || fail "get"
cmp -s model.safetensors "data/jobs/$job/artifacts/model.safetensors" || fail "another file"
# A program's artifacts too.
submit --image tandem --name files -- sh -c 'echo x >$TANDEM_ARTIFACTS_DIR/a.txt'
await "$job" succeeded
[ "$(artifacts "$job")" = '"name":"a.txt"' ] || { artifacts "$job" >out; fail "artifacts"; }
end_service
