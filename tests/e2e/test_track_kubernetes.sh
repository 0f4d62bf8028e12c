#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The kubernetes tracker against a real API server (TD_KUBE_API_UP is a script that starts one:
# SCRIPT DIR PORT writes DIR/kubeconfig and DIR/pids), with a node that runs pods as processes.
. "$(dirname "$0")/track.sh"
kind=kubernetes
also='image: small'
stopped=143 killed=143 # a pod that is deleted takes its status with it
host=node
need_command python3
need_command curl
[ -n "${TD_KUBE_API_UP:-}" ] || skip "TD_KUBE_API_UP names no script that starts an API server"
[ -x "$TD_KUBE_API_UP" ] || skip "$TD_KUBE_API_UP is not there"
port=${TD_KUBE_PORT:-$((20000 + $$ % 3000 * 4))} # below those that clients get
release() { kill $(cat "$dir/kube/pids" 2>/dev/null) 2>/dev/null; }
"$TD_KUBE_API_UP" "$dir/kube" "$port" >up 2>&1 || { release; skip "no API server: $(tail -1 up)"; }
mkdir node
background python3 "$source/tests/e2e/fake_kubelet.py" kube/kubeconfig $host $((port + 3))
ready grep -q ready background.log
echo "kubernetes: {config: $dir/kube/kubeconfig}" >service.yaml
server=https://127.0.0.1:$port
token=$(sed -n 's/.*token: "\([^"]*\)".*/\1/p' kube/kubeconfig)
api() {
    curl -sS --max-time 60 --cacert kube/certs/apiserver.crt -H "Authorization: Bearer $token" "$@"
}
of() { api "$server/api/v1/namespaces/default/$1?labelSelector=tandem-token"; }
left() { { of pods; of services; of configmaps; of secrets; } | grep -c '"uid": "[^"]*",$'; }

all_of_it

# Names of the book, services and owners.
spec 'name: seen' 'resources: {members: 2}' <<<'exit 0'
drive job-2-1-aa start wait:EXITED
of pods >pods
grep -q '"name": "job-12-[0-9]*-seen-master"' pods || fail "master's name"
grep -q '"name": "job-12-[0-9]*-seen-worker-1"' pods || fail "worker's name"
grep -q '"kind": "ConfigMap"' pods || fail "no owner"
grep -q podAffinity pods || fail "not packed"
of services | grep -q '"name": "job-12-[0-9]*-seen-service"' || fail "service's name"
drive job-2-1-aa forget
# Secrets are not in the pods.
spec 'name: told' <<<'echo has $MY_TOKEN and $OPEN'
drive job-2-11-kk -e MY_TOKEN='kept $(OPEN)' -e OPEN=shown start wait:EXITED logs:0
has 'has kept $(OPEN) and shown'
of pods >pods
grep -q 'shown' pods || fail "variables"
! grep -q 'kept' pods || fail "a secret is in a pod"
drive job-2-11-kk forget
none_left "of a group with a secret"
# A member that dies before another has begun is restarted, too.
died=$dir/job/died
also='image: late' spec 'name: early' 'restarts: 1' 'resources: {members: 2}' \
    <<<"if [ \$RANK = 1 ] && ! [ -e $died ]; then echo >$died; exit 9; fi"
drive job-2-10-jj start wait:RESTARTED wait:EXITED forget
has 'RESTARTED member 1.*exit status 9' 'EXITED member 0 status 0'
# Images that do not come are reported; those that cannot come end the group.
printf '%s\n' 'image: no/such' 'command: [sh]' >spec.yaml
drive job-2-2-bb start wait:TROUBLE kill wait:EXITED forget
has 'TROUBLE member 0.*ImagePullBackOff: Back-off pulling'
printf '%s\n' 'image: Bad' 'resources: {members: 2}' 'command: [sh]' >spec.yaml
drive job-2-3-cc start wait:FAILED forget
has 'FAILED member 0.*class launch.*InvalidImageName'
# What the server refuses leaves nothing behind.
printf '%s\n' 'image: small' 'node_selector: {"bad key!": x}' 'command: [sh]' >spec.yaml
drive job-2-4-dd start wait:FAILED
has 'FAILED member 0.*class launch.*422'
none_left "after a refusal"
# The account of tools/oci/kubernetes.yaml may do what the tracker does, and no more; the server
# takes the whole file.
awk '/^---$/ { n++; next } { print >"manifest-" n + 0 }' "$source/tools/oci/kubernetes.yaml"
for file in manifest-*; do
    kind_of=$(sed -n 's/^kind: //p' "$file" | tr '[:upper:]' '[:lower:]')
    group=$(sed -n 's/^apiVersion: //p' "$file") # "v1" alone is the core's
    case $group in v1) group=api/v1 ;; *) group=apis/$group ;; esac
    api -f -X POST -H 'Content-Type: application/yaml' --data-binary @"$file" \
        "$server/$group/namespaces/default/${kind_of}s" >out 2>&1 || fail "$file: $kind_of"
done
request='{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}'
account=$(api -f -X POST -H 'Content-Type: application/json' -d "$request" \
    "$server/api/v1/namespaces/default/serviceaccounts/tandem/token" |
    sed -n 's/.*"token": "\([^"]*\)".*/\1/p')
[ -n "$account" ] || fail "the account has no token"
sed "s|user: {token: .*|user: {token: \"$account\"}}]|" kube/kubeconfig >accounted
echo "kubernetes: {config: $dir/accounted}" >service.yaml
spec 'name: accounted' 'resources: {members: 2}' <<<'echo allowed'
drive job-2-7-gg start wait:EXITED logs:0 forget
has 'EXITED member 0 status 0' allowed
none_left "by the account"
spec 'name: accounted' 'grace_s: 1' <<<'sleep 600'
drive job-2-8-hh start wait:STARTED stop wait:EXITED forget
none_left "by the account, stopped"
token=$account api -o out -w '%{http_code}' "$server/api/v1/nodes" | grep -q 403 ||
    fail "the account may see nodes"
# KUBECONFIG is a list: the first that has a context.
echo 'kubernetes: {namespace: default}' >service.yaml
echo '{apiVersion: v1, kind: Config}' >empty
spec 'name: listed' <<<'exit 0'
export KUBECONFIG=$dir/nothing:$dir/empty:$dir/kube/kubeconfig
drive job-2-9-ii start wait:EXITED forget
has 'EXITED member 0 status 0'
KUBECONFIG=$dir/nothing "$tracker" kubernetes service.yaml spec.yaml "$dir/job" x start >out 2>&1 &&
    fail "no kubeconfig, and no word of it"
has "KUBECONFIG: there is no file $dir/nothing"
unset KUBECONFIG
# A token by a credential plug-in; a wrong one is told.
exec="apiVersion: client.authentication.k8s.io/v1, command: $dir/plugin"
sed "s|user: {token: .*|user: {exec: {$exec}}}]|" kube/kubeconfig >plugged
echo "kubernetes: {config: $dir/plugged}" >service.yaml
printf '#!/bin/sh\necho %s\n' "'{\"status\": {\"token\": \"$token\"}}'" >plugin
chmod +x plugin
spec 'name: plugged' <<<'exit 0'
drive job-2-5-ee start wait:EXITED forget
printf '#!/bin/sh\necho %s\n' "'{\"status\": {\"token\": \"wrong\"}}'" >plugin
drive job-2-6-ff start wait:FAILED
has 'FAILED.*401'
