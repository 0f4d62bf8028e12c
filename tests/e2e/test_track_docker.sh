#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The docker tracker against a real engine of the test's own: groups start together or not at all,
# run, fail, are stopped, are adopted after a restart, and leave nothing behind.
. "$(dirname "$0")/track.sh"
kind=docker
also='image: small'
need_root
need_command dockerd
need_command busybox
need_command curl
sock=$dir/docker.sock
release() { umount "$dir/exec/netns/default" 2>/dev/null; }
background dockerd --iptables=false --ip6tables=false --bridge=none --ip-forward=false \
    --ip-masq=false --storage-driver=overlay2 --exec-opt native.cgroupdriver=cgroupfs \
    --host "unix://$sock" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid"
api() { curl -sS --max-time 60 --unix-socket "$sock" "$@"; }
ready api -f http://docker/_ping

mkdir -p root/bin root/tmp
cp "$(command -v busybox)" root/bin/
for program in sh sleep echo; do ln -s busybox root/bin/$program; done
tar -C root -c . | api -f -X POST -H 'Content-Type: application/x-tar' --data-binary @- \
    'http://docker/images/create?fromSrc=-&repo=small&tag=latest' >/dev/null || fail "no image"
echo "docker: {socket: $sock, network: host}" >service.yaml
left() { api 'http://docker/containers/json?all=1' | grep -o '"Id"' | wc -l; }

all_of_it

# Two ranks of tandem in two containers: the digest of one rank.
"$source/tools/oci-image" "$build" --root image || fail "no files for an image"
tar -C image -c . | api -f -X POST -H 'Content-Type: application/x-tar' --data-binary @- \
    'http://docker/images/create?fromSrc=-&repo=tandem&tag=latest' >/dev/null || fail "no image"
rm -rf image
cat >job/job.yaml <<'EOF'
model: [flatten, linear]
data: {source: digits, count: 600}
train: {batch: 32, epochs: 1}
EOF
"$tandem" train job/job.yaml -q --run-dir one >one.out 2>&1 || fail "one rank"
printf '%s\n' 'image: tandem' 'resources: {members: 2}' 'framework: tandem' \
    "command: [tandem, train, $dir/job/job.yaml, -q, --run-dir=$dir/job/run]" >spec.yaml
secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n') # as the service gives it
drive job-2-0-zz -e "TANDEM_SECRET=$secret" -e TANDEM_STORE_RANK=0 start wait:EXITED logs:0 forget
has 'EXITED member 0 status 0' "$(grep -o 'digest sha256:[0-9a-f]*' one.out)"

# The job's name is in the container's; nothing is left of a group that cannot start.
spec 'name: seen' <<<'exit 0'
drive job-2-1-aa start wait:EXITED
api 'http://docker/containers/json?all=1' | grep -q '"/12-[0-9]*-seen"' || fail "names"
drive job-2-1-aa forget
printf '%s\n' 'image: small' 'resources: {members: 2}' 'command: [/no/such/program]' >spec.yaml
drive job-2-2-bb start wait:FAILED
has 'FAILED.*no/such/program'
echo "docker: {socket: $sock, network: host, pull: never}" >service.yaml
printf '%s\n' 'image: no/such' 'resources: {members: 2}' 'command: [sh]' >spec.yaml
drive job-2-3-cc start wait:FAILED
has 'FAILED member 0 status -1 class launch: .*No such image: no/such:latest'
none_left "after a failed start"
# An engine that is not there is trouble, not an end.
echo "docker: {socket: $dir/nobody.sock}" >service.yaml
drive job-2-4-dd adopt wait:TROUBLE
has 'TROUBLE'
