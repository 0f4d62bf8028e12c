#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The client of remote storage against a real S3 server that checks signatures: OpenStack Swift with
# its s3api, of the test's own. Objects, lists, parts, uploads that are taken up; then a training
# run that uploads its checkpoints and is continued from there.
. "$(dirname "$0")/real.sh"
need_root
for program in swift-proxy-server swift-object-server swift-ring-builder memcached unshare; do
    need_command $program
done
[ -d /etc/swift ] || skip "/etc/swift is not there"
. "$source/tests/e2e/upload.sh"
port=$((20000 + $$ % 9000 * 5))
mkdir -p etc srv/d1 cache
cat >etc/swift.conf <<EOF
[swift-hash]
swift_hash_path_suffix = test
[storage-policy:0]
name = Policy-0
default = yes
EOF
n=1
for kind in account container object; do
    cat >etc/$kind-server.conf <<EOF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $((port + n))
workers = 0
user = root
swift_dir = /etc/swift
devices = $dir/srv
mount_check = false
disable_fallocate = true
recon_cache_path = $dir/cache
[pipeline:main]
pipeline = $kind-server
[app:$kind-server]
use = egg:swift#$kind
EOF
    (cd etc && swift-ring-builder $kind.builder create 4 1 1 &&
        swift-ring-builder $kind.builder add --region 1 --zone 1 --ip 127.0.0.1 \
            --port $((port + n)) --device d1 --weight 1 &&
        swift-ring-builder $kind.builder rebalance) >>rings.log 2>&1
    [ -s etc/$kind.ring.gz ] || fail "no ring for $kind: $(tail -1 rings.log)"
    n=$((n + 1))
done
cat >etc/proxy-server.conf <<EOF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $port
workers = 0
user = root
swift_dir = /etc/swift
[pipeline:main]
pipeline = catch_errors cache s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:$((port + 4))
[filter:s3api]
use = egg:swift#s3api
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
EOF
background memcached -u root -l 127.0.0.1 -p $((port + 4)) -m 16
for kind in account container object proxy; do
    background unshare -m sh -c "mount --bind '$dir/etc' /etc/swift && mount --bind '$dir' '$dir' &&
        exec swift-$kind-server /etc/swift/$kind-server.conf"
done
export AWS_ACCESS_KEY_ID=test:tester AWS_SECRET_ACCESS_KEY=testing
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
remote() { "$build/tests/prog_remote" "$@"; }
answers() { curl -s -o /dev/null "http://127.0.0.1:$port/"; }
ready answers
# The client makes no buckets: those are their owner's affair.
made() {
    token=$(curl -sS -D - -o /dev/null --max-time 20 -H 'X-Auth-User: test:tester' \
        -H 'X-Auth-Key: testing' "http://127.0.0.1:$port/auth/v1.0" | tr -d '\r' |
        sed -n 's/^[Xx]-[Aa]uth-[Tt]oken: //p')
    [ -n "$token" ] && curl -sS -f -o /dev/null --max-time 20 -X PUT -H "X-Auth-Token: $token" \
        "http://127.0.0.1:$port/v1/AUTH_test/bucket"
}
ready made

# Objects with awkward names; lists in order; absent ones.
printf hello >a
remote put 's3://bucket/x/a b+c=%&.txt' a >hash || fail "put"
[ "$(cat hash)" = "$(sha256sum a | cut -d ' ' -f 1)" ] || fail "sha256"
remote put s3://bucket/x/y/b a >/dev/null || fail "put b"
remote list s3://bucket/x >out 2>&1 || fail "list"
printf '%s\n' 'a b+c=%&.txt 5' 'y/b 5' | diff - out || fail "the list is another"
remote get 's3://bucket/x/a b+c=%&.txt' got && cmp a got || fail "get"
remote delete s3://bucket/x/y/b && remote delete s3://bucket/x/y/b || fail "delete"
remote get s3://bucket/x/y/b got2 >out 2>&1 && fail "a deleted object"
grep -q 'status 404: NoSuchKey' out || fail "404 is not told"
[ ! -e got2 ] || fail "a file of an absent object"
# Wrong keys are refused, and the secret is in no message.
AWS_SECRET_ACCESS_KEY=wrongsecret remote put s3://bucket/z a >out 2>&1 && fail "a wrong secret"
grep -q 'status 403: SignatureDoesNotMatch' out || fail "403 is not told"
grep -q wrongsecret out && fail "the secret is shown"
# Parts: a large file, whole; an upload that was killed goes on with what is there.
head -c 12000000 /dev/urandom >large
remote put s3://bucket/large large >hash || fail "parts"
remote get s3://bucket/large got "$(cat hash)" && cmp large got || fail "parts came back otherwise"
head -c 40000000 /dev/urandom >larger
"$build/tests/prog_remote" put s3://bucket/larger larger >killed 2>&1 &
pid=$!
parts() {
    curl -sS --max-time 20 -H "X-Auth-Token: $token" \
        "http://127.0.0.1:$port/v1/AUTH_test/bucket+segments?prefix=larger/" |
        grep -c '/[0-9][0-9]*$'
}
soon eval '[ "$(parts)" -ge 2 ]' || fail "no parts are sent"
kill -KILL $pid
wait $pid 2>/dev/null
remote list s3://bucket | grep -q larger && fail "half an object"
TANDEM_LOG=net=info remote put s3://bucket/larger larger >hash 2>out || fail "taking up"
grep -q 'an upload that was begun is taken up' out || fail "all was sent again"
remote get s3://bucket/larger got "$(cat hash)" || fail "taken up and different"
rm -f large larger got

continues_elsewhere s3://bucket/runs/digits ''
