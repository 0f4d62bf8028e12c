#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The docker tracker against a real engine of the test's own: groups start together or not at all,
# run, fail, are stopped, are adopted after a restart, and leave nothing behind.
. "$(dirname "$0")/track.sh"
kind=docker
also='image: small' tandem_also='image: tandem' torch_also='image: torch'
program=tandem
torch_stopped=137 # SIGTERM is nothing to a container's first process that does not ask for it
need_root
need_command dockerd
need_command busybox
need_command curl
sock=$dir/docker.sock
release() { umount "$dir/exec/netns/default" "$dir/exec2/netns/default" 2>/dev/null; }
# A container of the image `torch` has this host's programs: the engine has mounts of its own, which
# nobody else sees, with these folders read-only in the job's directory.
folders=(/usr)
if find_torch; then
    mapfile -t -O 1 folders < <("$python" -c 'import sys
for folder in sorted({sys.prefix, sys.base_prefix} - {"/usr"}): print(folder)')
fi
mounts=
mkdir -p torch/tmp
for folder in "${folders[@]}"; do
    there=$dir/job/host$folder
    mkdir -p "$there" "torch$(dirname "$folder")"
    ln -s "$there" "torch$folder"
    mounts+="mount --bind $folder $there && mount -o remount,ro,bind $there && "
done
for folder in bin lib lib64; do ln -s usr/$folder torch/$folder; done
background unshare -m --propagation private sh -c "$mounts exec dockerd --iptables=false \
    --ip6tables=false --bridge=none --ip-forward=false --ip-masq=false --storage-driver=overlay2 \
    --exec-opt native.cgroupdriver=cgroupfs --host unix://$sock --data-root $dir/data \
    --exec-root $dir/exec --pidfile $dir/pid"
api() { curl -sS --max-time 60 --unix-socket "$sock" "$@"; }
ready api -f http://docker/_ping

mkdir -p root/bin root/tmp
cp "$(command -v busybox)" root/bin/
for word in sh sleep echo; do ln -s busybox root/bin/$word; done
"$source/tools/oci-image" "$build" --root image || fail "no files for an image"
# import FOLDER NAME: its files as an image
import() {
    tar -C "$1" -c . | api -f -X POST -H 'Content-Type: application/x-tar' --data-binary @- \
        "http://docker/images/create?fromSrc=-&repo=$2&tag=latest" >/dev/null || fail "no image $2"
}
import root small
import image tandem
import torch torch
echo "docker: {socket: $sock, network: host}" >service.yaml
left() { api 'http://docker/containers/json?all=1' | grep -o '"Id"' | wc -l; }

all_of_it
results_are_published

# The job's name is in the container's; nothing is left of a group that cannot start.
spec 'name: seen' <<<'exit 0'
drive job-2-1-aa start wait:EXITED
api 'http://docker/containers/json?all=1' | grep -q '"/12-[0-9]*-seen"' || fail "names"
drive job-2-1-aa forget
# Its data set lies at the same path, to be read only.
mkdir -p sets/one
echo rows >sets/one/examples.csv
spec 'name: data' <<<"read row <$dir/sets/one/examples.csv; echo has \$row; \
{ echo other >$dir/sets/one/examples.csv; } 2>/dev/null || echo kept"
drive job-2-5-ee -d "$dir/sets/one" start wait:EXITED logs:0 forget
has 'has rows' kept
printf '%s\n' 'image: small' 'resources: {members: 2}' 'command: [/no/such/program]' >spec.yaml
drive job-2-2-bb start wait:FAILED
has 'FAILED.*no/such/program'
echo "docker: {socket: $sock, network: host, pull: never}" >service.yaml
printf '%s\n' 'image: no/such' 'resources: {members: 2}' 'command: [sh]' >spec.yaml
drive job-2-3-cc start wait:FAILED
has 'FAILED member 0 status -1 class launch: .*No such image: no/such:latest'
none_left "after a failed start"
# On `bridge` a group of several has a network of its own, which ends with its members: an engine in
# a network of its own, which has that bridge.
sock=$dir/bridged.sock
background unshare -m -n --propagation private sh -c "$mounts ip link set lo up && exec dockerd \
    --iptables=false --ip6tables=false --ip-masq=false --storage-driver=overlay2 \
    --exec-opt native.cgroupdriver=cgroupfs --host unix://$sock --data-root $dir/data2 \
    --exec-root $dir/exec2 --pidfile $dir/pid2"
ready api -f http://docker/_ping
import root small
import image tandem
import torch torch
rm -rf image
echo "docker: {socket: $sock, network: bridge}" >service.yaml
networks() { api http://docker/networks | grep -o '"Name":"tandem-[^"]*"' | wc -l; }
spec 'name: met' 'resources: {members: 2}' <<<"echo >$dir/job/bridged-\$RANK; until [ -e \
$dir/job/go ]; do sleep 0.1; done"
rm -f job/go
drive job-2-6-ff start wait:STARTED "file:$dir/job/bridged-0" "file:$dir/job/bridged-1"
[ "$(networks)" = 1 ] || fail "$(networks) networks for a group"
touch job/go
drive job-2-6-ff adopt wait:EXITED
has 'EXITED member 0 status 0'
[ "$(networks)" = 0 ] || fail "the network of an ended group stays"
[ "$(left)" = 2 ] || fail "$(left) containers of a group that has ended"
drive job-2-6-ff forget
none_left "on bridge"
# Ranks meet at the name of member 0's container, which is known when that one runs.
ranks_of_tandem
if command -v mpicc.mpich >/dev/null; then
    mpicc.mpich "$source/tests/e2e/mpi_world.c" -o job/mpich >out 2>&1 || fail "mpicc.mpich"
    cp "$tandem" job/tandem # with this host's libraries, which the image has
    secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
    printf '%s\n' 'image: torch' 'framework: mpi' 'resources: {members: 3}' 'grace_s: 5' \
        "command: [$dir/job/tandem, attend, --no-results, --framework, mpi, --, $dir/job/mpich]" \
        >spec.yaml
    drive job-2-7-aa -e "TANDEM_SECRET=$secret" -e TANDEM_STORE_RANK=0 start wait:EXITED \
        logs:0 logs:1 logs:2 forget
    has 'EXITED member 0 status 0' 'rank 0 of 3: sum 3, ring 2' 'rank 2 of 3: sum 3, ring 1'
    none_left "of a group of MPI"
else
    echo "$name: mpich is not installed: its group on bridge is skipped"
fi
# An engine that is not there is trouble, not an end.
echo "docker: {socket: $dir/nobody.sock}" >service.yaml
drive job-2-4-dd adopt wait:TROUBLE
has 'TROUBLE'
