#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# A service whose jobs run on a host that does not see its directory, reached by a command that runs
# a script as ssh does: they bring checkpoints, metrics and artifacts over HTTP, with a token of
# their own, and a second attempt goes on where the first one was.
. "$(dirname "$0")/real.sh"
. "$source/tests/e2e/serve.sh"
need_root
need_command curl
unshare -m true 2>/dev/null || skip "no mount namespaces here"
release() { service_gone; }
cat >reach <<EOF2
#!/bin/sh
shift
exec unshare -m --propagation private sh -c 'mount -t tmpfs none $dir/data && exec "\$@"' sh "\$@"
EOF2
chmod +x reach
mkdir data
config=$dir/service.yaml
token=secret-of-the-test
export TANDEM_TOKEN=$token
hash=$(printf %s "$token" | sha256sum | cut -c1-64)
auth=(-H "Authorization: Bearer $token")
echo "tracker: {default: ssh}
ssh: {hosts: ['127.0.0.1:4'], command: $dir/reach, dir: $dir/there, program: $tandem}
security:
  tokens:
    - {name: boss, scope: admin, sha256: $hash}" >service.yaml
http_port=$((16000 + $$ % 4000))
printf '%s\n' 'name: away' 'model: [flatten, {linear: 128}, relu, linear]' \
    'data: {source: digits, count: 20000}' 'train: {batch: 16, steps: 10000}' \
    'log: {every: 10}' >away.yaml # $mark
"$tandem" train away.yaml -q -j1 --run-dir alone >out 2>&1 || fail "alone"
alone=$(grep -o 'digest sha256:[0-9a-f]*' out)

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
[ "$(digest "$away" 2)" = "$alone" ] || fail "another digest"
"$tandem" artifacts -s "$server" get "$away" model.safetensors >out 2>&1 || fail "get"
cmp -s model.safetensors "alone/checkpoints/$(cat alone/checkpoints/best)/model.safetensors" ||
    fail "other weights"

# A job's token is good for what is its own, and for nothing else.
program="say='%{http_code} '
code() { curl -s -o /dev/null -w \"\$say\" -H \"Authorization: Bearer \$TANDEM_TOKEN\" \"\$@\"; }
echo hello >file
code -T file \$TANDEM_SERVER/v1/jobs/\$JOB_ID/artifacts/a/file
code -T file \$TANDEM_SERVER/v1/jobs/\$JOB_ID/checkpoints/../../$away/artifacts/file --path-as-is
code -T file \$TANDEM_SERVER/v1/jobs/$away/artifacts/file
code -T file \$TANDEM_SERVER/v1/buckets/b/file
code \$TANDEM_SERVER/v1/buckets/b/file
code \$TANDEM_SERVER/v1/jobs
code -X POST \$TANDEM_SERVER/v1/jobs/\$JOB_ID/cancel
echo \$TANDEM_CHECKPOINT_URL; mkdir state; echo kept >state/x; $tandem save state
rm -r state; $tandem load state; cat state/x; echo token \$TANDEM_TOKEN"
submit --name own -- sh -c "$program" # $mark
await "$job" succeeded
ask "$server/v1/jobs/$job/logs" >out
grep -q '^201 400 401 401 401 401 401 ' out || fail "what a job's token may do"
grep -q "/v1/jobs/$job/checkpoints$" out || fail "no URL of checkpoints"
grep -qx kept out || fail "save and load"
[ "$(artifacts "$job")" = '"name":"a/file"' ] || fail "artifacts"
# The job has ended: its token is none any more.
theirs=$(sed -n 's/^token //p' out)
[ -n "$theirs" ] || fail "no token"
curl -s --max-time 60 -o out -w '%{http_code}' -H "Authorization: Bearer $theirs" -T away.yaml \
    "$server/v1/jobs/$job/artifacts/late" | grep 401 >/dev/null || fail "a token outlives its job"

# Its data set, by an address that wants its token; other objects are not for it.
curl --version | grep HTTP2 >/dev/null || { echo "$name: curl has no HTTP/2: no data set"; exit 0; }
printf 'hello there,greeting\nsee you,goodbye\ngood day,greeting\n' >rows.csv
ask -T rows.csv "$server/v1/buckets/own/rows.csv" >out || fail "an object"
grpc=$(sed -n 's/^gRPC  //p' second)
call() { # METHOD: of the message in `frame`
    ask --http2-prior-knowledge -H 'content-type: application/grpc' -H 'te: trailers' -o answer \
        --data-binary @frame "http://$grpc/data_management.DataManagementService/$1" 2>out ||
        fail "$1"
}
printf '\0\0\0\0\x14\x0a\x01d\x18\x01\x22\x03own\x2a\x08rows.csv' >frame # a TEXT_INTENT
call CreateDataset
printf '\0\0\0\0\x03\x0a\x011' >frame
call PrepareTrainingDataset
cat >reader.sh <<'EOF3'
for from in $TRAINING_DATA_URL/labels.csv $TANDEM_SERVER/v1/buckets/own/rows.csv; do
    curl -s -w '%{http_code}\n' -H "Authorization: Bearer $TANDEM_TOKEN" $from
done
EOF3
printf '%s\n' 'name: reader' 'dataset_id: "1"' 'train_data_version_hash: hashAg==' \
    "command: [sh, $dir/reader.sh]" >reader.yaml
submit --spec reader.yaml
await "$job" succeeded
ask "$server/v1/jobs/$job/logs" >out
grep greeting out >/dev/null || fail "its data set"
[ "$(grep -cx 200 out) $(grep -c '401$' out)" = '1 1' ] || fail "what it may read"
end_service
