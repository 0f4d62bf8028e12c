#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The image of the service: its form is what the OCI's specification says, the same build gives the
# same bytes, its programs find all they need in it, and under a real engine it is the book's
# service on the book's port, which runs jobs on that engine.
. "$(dirname "$0")/real.sh"
"$tandem" help serve >/dev/null 2>&1 || skip "built without the service"
need_command python3
need_command strip

"$source/tools/oci-image" "$build" >out 2>&1 && fail "no name for the file"
grep -q 'give OUT.tar or --root DIR' out || fail "why there is no image"
"$source/tools/oci-image" "$dir/nothing" image.tar >out 2>&1 && fail "an image without a build"
grep -q "^oci-image: there is no $dir/nothing/tandem: build first" out || fail "what is missing"
[ -e image.tar ] && fail "an image of nothing"
"$source/tools/oci-image" "$build" image.tar --name team/tandem:1 >out 2>&1 || fail "no image"
"$source/tools/oci-image" "$build" again.tar --name team/tandem:1 >out 2>&1 || fail "not again"
cmp image.tar again.tar || fail "the same build gave another image"
rm again.tar

python3 - <<'CHECK' >out 2>&1 || fail "the image's form"
import gzip, hashlib, io, json, tarfile
image = tarfile.open("image.tar")
read = lambda path: image.extractfile(path).read()
def blob(d):
    data = read("blobs/" + d["digest"].replace(":", "/"))
    assert len(data) == d["size"] and "sha256:" + hashlib.sha256(data).hexdigest() == d["digest"], d
    return data
assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
index = json.loads(read("index.json"))
manifest = json.loads(blob(index["manifests"][0]))
config = json.loads(blob(manifest["config"]))
layer = gzip.decompress(blob(manifest["layers"][0]))
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
assert config["os"] == "linux" and "51001/tcp" in config["config"]["ExposedPorts"]
assert "APP_CONFIG=config/config-docker-docker.properties" in config["config"]["Env"]
older = json.loads(read("manifest.json"))[0]
assert older["RepoTags"] == ["team/tandem:1"]
assert read(older["Config"]) == blob(manifest["config"]) and len(older["Layers"]) == 1
files = {m.name: m for m in tarfile.open(fileobj=io.BytesIO(layer))}
for name in ("usr/local/bin/tandem", "usr/local/bin/entry", "bin/sh", "config", "var/lib/tandem",
             "config/config-docker-docker.properties", "config/config-docker-kube.properties"):
    assert name in files, name
for m in files.values():
    assert m.uid == 0 and m.mtime == 0 and not m.name.startswith(("/", "..")), m.name
assert files["usr/local/bin/entry"].mode == 0o755 and files["tmp"].mode == 0o1777
CHECK

need_root
# Nothing but the image's own files: the program, and the libraries that it loads late.
"$source/tools/oci-image" "$build" --root root >out 2>&1 || fail "no files"
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin # chroot's place, and the image's
entry=(chroot root /usr/local/bin/entry)
timeout 60 "${entry[@]}" version >out 2>&1 || fail "version"
mkdir root/job && cat >root/job/job.yaml <<'EOF2'
model: [flatten, linear]
data: {source: digits, count: 100}
train: {batch: 20, epochs: 1}
EOF2
timeout 60 "${entry[@]}" train /job/job.yaml -q --run-dir /job/run >out 2>&1 || fail "train in it"
grep -q 'digest sha256:' out || fail "no digest"
# Groups of Open MPI: the module that serves their ranks is in the image, with its libraries.
if [ -e "$build/libtandem_pmix.so" ]; then
    secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
    timeout 60 env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TANDEM_SECRET="$secret" \
        TANDEM_STORE=127.0.0.1:$((17000 + $$ % 4000)) "${entry[@]}" attend --no-results \
        --framework openmpi -- sh -c 'echo "rank $PMIX_RANK"' >out 2>&1 || fail "attend in it"
    grep -qx 'rank 0' out || fail "no PMIx in it"
fi
# serves NAME=VALUE...: the service starts with the book's properties, and ends when it is told to
serves() {
    (cd root && exec env -i PATH="$PATH" HOME=/ "$@" chroot . /usr/local/bin/entry \
        --set grpc.listen=127.0.0.1:0 --set http.listen=127.0.0.1:0) >out 2>&1 &
    local pid=$!
    soon grep -q '^data  /var/lib/tandem' out || fail "it does not serve: $*"
    kill -TERM $pid && wait $pid || fail "SIGTERM: $*"
}
serves APP_CONFIG=config/config-docker-docker.properties
cat >root/.kube/config <<'EOF2'
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
EOF2
serves APP_CONFIG=config/config-docker-kube.properties
rm root/.kube/config

need_command dockerd
need_command busybox
need_command curl
need_command ip
# The engine has a network of its own, in which the book's port is free.
sock=$dir/docker.sock
release() { umount "$dir/exec/netns/default" 2>/dev/null; }
background unshare -n sh -c "ip link set lo up; exec dockerd --iptables=false --ip6tables=false \
    --bridge=none --ip-forward=false --ip-masq=false --storage-driver=overlay2 \
    --exec-opt native.cgroupdriver=cgroupfs --host unix://$sock --data-root $dir/data \
    --exec-root $dir/exec --pidfile $dir/pid"
api() { curl -sS --max-time 60 --unix-socket "$sock" -H 'Content-Type: application/json' "$@"; }
ready api -f http://docker/_ping
there() { nsenter -n -t "$(cat "$dir/pid")" "$@"; }
api -f -X POST -H 'Content-Type: application/x-tar' -T image.tar \
    http://docker/images/load >out 2>&1 || fail "load"
grep -q 'Loaded image: team/tandem:1' out || fail "not loaded"
mkdir -p small/bin
cp "$(command -v busybox)" small/bin/sh
tar -C small -c . | api -f -X POST -H 'Content-Type: application/x-tar' --data-binary @- \
    'http://docker/images/create?fromSrc=-&repo=small&tag=latest' >/dev/null || fail "no image"

# serve NAME: as the book's start script does
serve() {
    api -f "http://docker/containers/create?name=$1" -d '{"Image": "team/tandem:1",
        "Cmd": ["training-service.jar"], "Env": ["APP_CONFIG=config/config-alone.properties"],
        "HostConfig": {"NetworkMode": "host",
        "Binds": ["'"$sock"':/var/run/docker.sock", "'"$dir/kept"':/var/lib/tandem"]}}' \
        >out 2>&1 || fail "create $1"
    api -f -X POST "http://docker/containers/$1/start" >out 2>&1 || fail "start $1"
    soon healthy || { api "http://docker/containers/$1/logs?stdout=1&stderr=1" >out; fail "$1"; }
}
healthy() {
    printf '\0\0\0\0\0' | there curl -sS --max-time 10 --http2-prior-knowledge --data-binary @- \
        -H 'content-type: application/grpc' -H 'te: trailers' -o answer \
        http://127.0.0.1:51001/grpc.health.v1.Health/Check 2>/dev/null &&
        [ "$(od -An -tx1 answer | tr -d ' \n')" = 00000000020801 ]
}
succeeded() {
    there "$tandem" jobs -s http://127.0.0.1:6004 --all >out 2>&1 && grep -q succeeded out
}
mkdir kept
serve first
printf '%s\n' 'name: two' 'image: small' 'resources: {members: 2}' \
    'command: [sh, -c, "echo rank $RANK of $WORLD_SIZE"]' >spec.yaml
there "$tandem" submit -s http://127.0.0.1:6004 --spec spec.yaml >out 2>&1 || fail "submit"
soon succeeded || fail "the job has not succeeded"
there "$tandem" logs -s http://127.0.0.1:6004 1 --member 1 >out 2>&1 || fail "logs"
grep -q 'rank 1 of 2' out || fail "its output"
api -f -X POST 'http://docker/containers/first/stop?t=30' >out 2>&1 || fail "stop"
api http://docker/containers/first/json | grep -q '"ExitCode":0' || fail "it did not end well"
serve second
succeeded || fail "the next service does not know the job"
api -f -X POST 'http://docker/containers/second/stop?t=30' >out 2>&1 || fail "stop"
