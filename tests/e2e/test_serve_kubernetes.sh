#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A service whose jobs are pods of a real API server, on a node that does not see its directory:
# they bring checkpoints, metrics and artifacts over HTTP, and a second pod goes on where the first
# one was.
. "$(dirname "$0")/real.sh"
. "$source/tests/e2e/serve.sh"
need_root
need_command python3
need_command curl
unshare -m true 2>/dev/null || skip "no mount namespaces here"
[ -n "${TD_KUBE_API_UP:-}" ] || skip "TD_KUBE_API_UP names no script that starts an API server"
[ -x "$TD_KUBE_API_UP" ] || skip "$TD_KUBE_API_UP is not there"
port=${TD_KUBE_PORT:-$((20000 + $$ % 3000 * 4))} # below those that clients get
release() {
    service_gone
    kill $(cat "$dir/kube/pids" 2>/dev/null) 2>/dev/null
}
"$TD_KUBE_API_UP" "$dir/kube" "$port" >up 2>&1 || { release; skip "no API server: $(tail -1 up)"; }
mkdir node data
PATH=$build:$PATH background unshare -m --propagation private sh -c \
    "mount -t tmpfs none $dir/data && exec python3 $source/tests/e2e/fake_kubelet.py \
    $dir/kube/kubeconfig node $((port + 3)) empty"
ready grep -q ready background.log
config=$dir/service.yaml
echo "tracker: {default: kubernetes}
kubernetes: {config: $dir/kube/kubeconfig}" >service.yaml
http_port=$((16000 + $$ % 4000))
printf '%s\n' 'name: away' 'model: [flatten, {linear: 128}, relu, linear]' \
    'data: {source: digits, count: 20000}' 'train: {batch: 16, steps: 10000}' \
    'log: {every: 10}' >away.yaml # $mark

serve first --set http.advertise="127.0.0.1:$http_port"
submit away.yaml
away=$job
soon has_steps "$away" || fail "no metrics while it runs"
await "$away" running
[ ! -e "data/jobs/$away/run" ] || fail "its directory is the service's"
crash
serve second --set http.advertise="127.0.0.1:$http_port"
await "$away" running
[ "$(number attempt "$away")" = 1 ] || fail "another attempt"
"$tandem" pause -s "$server" "$away" >out 2>&1 || fail "pause"
await "$away" paused
[ -e "data/jobs/$away/checkpoints/latest" ] || fail "no checkpoint was brought"
"$tandem" resume -s "$server" "$away" >out 2>&1 || fail "resume"
await "$away" succeeded
[ "$(number attempt "$away")" = 2 ] || fail "not two attempts"
metrics "$away" >out
second=$(grep '"kind": "begin"' out | sed -n '2s/.*"step": \([0-9]*\),.*/\1/p')
[ "${second:-1}" -gt 1 ] || fail "the second attempt began at step ${second:-none}"
[ "$(grep -c '"end": "done"' out)" = 1 ] || fail "not one end"
"$tandem" artifacts -s "$server" get "$away" model.safetensors >out 2>&1 || fail "get"
cmp -s model.safetensors "data/jobs/$away/artifacts/model.safetensors" || fail "other bytes"

end_service
