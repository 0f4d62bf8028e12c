#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The kubernetes tracker on a whole cluster: scheduler, kubelet, containers. TD_KUBE_CONFIG is its
# kubeconfig, TD_KUBE_IMAGE an image with a shell that its nodes have (default: small:1). Pods share
# no directory with this host, so nothing here is told through files.
. "$(dirname "$0")/track.sh"
kind=kubernetes
also="image: ${TD_KUBE_IMAGE:-small:1}"
need_command kubectl
[ -n "${TD_KUBE_CONFIG:-}" ] || skip "TD_KUBE_CONFIG names no kubeconfig of a cluster"
[ -r "$TD_KUBE_CONFIG" ] || skip "$TD_KUBE_CONFIG cannot be read"
space=tandem-test-$$ # nothing of anybody else's
echo "kubernetes: {config: $TD_KUBE_CONFIG, namespace: $space}" >service.yaml
kube() { timeout 60 kubectl --kubeconfig "$TD_KUBE_CONFIG" --namespace "$space" "$@"; }
kube get nodes --no-headers 2>out | grep -q ' Ready' || skip "no node is ready: $(tail -1 out)"
release() { kube delete namespace "$space" --wait=false >/dev/null 2>&1; }
kube create namespace "$space" >out 2>&1 || fail "no namespace can be made"
things=pods,services,configmaps,secrets
left() { kube get $things -l tandem-token --no-headers 2>/dev/null | wc -l; }

two_members_run_and_end
a_failure_ends_the_group
members_have_several_processes

# Adopted while it runs; logs of the time before; stopped.
spec 'name: long' 'grace_s: 5' 'resources: {members: 2}' \
    <<<'echo begun $RANK; while :; do sleep 0.1; done'
drive job-5-1-aa start wait:STARTED
drive job-5-1-aa adopt wait:STARTED logs:0 logs:1 stop wait:EXITED
has 'begun 0' 'begun 1' 'EXITED member 0 status 143'
drive job-5-1-aa forget
none_left "after a stop"
# A member that fails is restarted alone, as often as it may be.
spec 'name: again' 'restarts: 1' 'grace_s: 1' 'resources: {members: 2}' \
    <<<'if [ $RANK = 1 ]; then exit 9; fi; while :; do sleep 0.1; done'
drive job-5-2-bb start wait:RESTARTED wait:EXITED forget
has 'RESTARTED member 1.*exit status 9' 'EXITED member 0 status 9'
# What the node says of a pod that took too much memory, and of images.
spec 'name: large' 'resources: {memory_mb: 16}' <<<'exec dd if=/dev/zero of=/dev/null bs=64000000'
drive job-5-3-cc start wait:EXITED forget
has 'EXITED member 0 status 137'
printf '%s\n' 'image: no-such-host.invalid/no/such' 'command: [sh]' >spec.yaml
drive job-5-4-dd start wait:TROUBLE kill wait:EXITED forget
has 'TROUBLE member 0.*\(ImagePullBackOff\|ErrImagePull\)'
printf '%s\n' 'image: Bad' 'command: [sh]' >spec.yaml
drive job-5-5-ee start wait:FAILED forget
has 'FAILED member 0.*class launch.*InvalidImageName'
# More than the cluster has: it waits and says why.
spec 'name: huge' 'resources: {memory_mb: 900000000}' <<<'exit 0'
drive job-5-6-ff start wait:TROUBLE wait:PENDING kill wait:EXITED forget
has 'TROUBLE member 0.*Unschedulable'
none_left "in the end"
