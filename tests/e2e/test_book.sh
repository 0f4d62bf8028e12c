#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The book's calls, replayed against one `tandem serve` by gRPC's own Python client with reflection
# (book_calls.py), and by curl with raw frames; every listener serves all services; a service that
# is killed forgets nothing. The environment with grpcio is made on first use in BUILD/venv-grpc;
# where it cannot be made (no network), the test says so and is skipped.
. "$(dirname "$0")/lib.sh"
venv=$build/venv-grpc

make_venv() {
    python3 -m venv "$venv" && limited "$venv/bin/pip" install --quiet \
        --disable-pip-version-check --retries 1 -r "$source/tests/e2e/grpc.txt" &&
        touch "$venv/ready"
}
exec 9>"$venv.lock"
flock 9 # who comes second waits for what the first one makes
if [ ! -e "$venv/ready" ] && ! make_venv >out 2>&1; then
    echo "test_book: skipped: the Python environment cannot be made: $(tail -n 1 out)"
    exit 77
fi
exec 9>&-

cat >"$mark" <<END
grpc: {listen: ["127.0.0.1:0", "127.0.0.1:0"]}
http: {listen: ["127.0.0.1:0"]}
data: {dir: $dir/data}
capacity: {slots: 4}
END
serve() { # [CONFIG]
    rm -f serve.out # of the one before
    "$tandem" serve --config "${1:-$mark}" >serve.out 2>&1 &
    pid=$!
    soon grep -qs '^data ' serve.out || { cat serve.out >&3; fail "tandem serve does not start"; }
    mapfile -t ports < <(sed -n 's/^gRPC .*:\([0-9]*\)$/\1/p' serve.out)
}
book() {
    limited "$venv/bin/python" "$source/tests/e2e/book_calls.py" "$1" "$dir/data" "${ports[@]}" \
        >out 2>&1 || fail "$1: $(tail -n 3 out)"
}
serve
[ "${#ports[@]}" = 2 ] || fail "not two listeners: ${ports[*]}"
for part in reflection data train predict parallel runs tandem; do book "$part"; done

# The book's own client, where it is installed: what its scripts take out of the answers.
if command -v grpcurl >/dev/null; then
    asks() { # REQUEST METHOD: as the scripts do, by reflection
        limited grpcurl -plaintext -d "$1" "127.0.0.1:${ports[1]}" "$2" >out 2>&1
    }
    asks '{"job_id":"1"}' training.TrainingService/GetTrainingStatus || fail "grpcurl: a status"
    has '"status": "succeed"'
    has '"job_id": 1'
    has '"train_data_version_hash": "hashAg=="'
    asks '{"dataset_id":"1"}' data_management.DataManagementService/PrepareTrainingDataset ||
        fail "grpcurl: a version"
    has '"version_hash": "hashDg=="'
    asks '{"job_id":"99999"}' training.TrainingService/GetTrainingStatus && fail "an unknown job"
    has "Code: NotFound"
    has "Job 99999 doesn't exist"
    asks '' grpc.health.v1.Health/Check || fail "grpcurl: health"
    has SERVING
else
    echo "test_book: grpcurl is not installed: its calls are left out"
fi

# Raw frames: a zero, the size, the message (job_id 1), and what comes back.
printf '\0\0\0\0\2\x08\1' >frame
curl -sS --http2-prior-knowledge --max-time 20 -D headers -o answer \
    -H 'content-type: application/grpc' -H 'te: trailers' --data-binary @frame \
    "http://127.0.0.1:${ports[1]}/training.TrainingService/GetTrainingStatus" 2>out ||
    fail "curl: $(cat out)"
grep -qa 'Exit code 0' answer || fail "the answer to raw frames has no message"
[ "$(od -An -tx1 -N1 answer | tr -d ' ')" = 00 ] || fail "the answer's frame is compressed"
grep -qi '^grpc-status: 0' headers || fail "no grpc-status in $(cat headers)"

{ kill -KILL "$pid" && wait "$pid"; } 2>/dev/null
serve
book after
# Another service whose jobs take their data from this one (data.service), and tell it of their runs
# (data.metadata_service).
first=$pid first_ports=("${ports[@]}")
sed "s|dir: $dir/data|dir: $dir/other, service: '127.0.0.1:${ports[0]}', \
metadata_service: '127.0.0.1:${ports[0]}'|" "$mark" >"$mark.other"
serve "$mark.other"
ports+=("${first_ports[0]}")
book other
kill -TERM "$pid"
wait "$pid" || fail "SIGTERM: status $?"
pid=$first ports=("${first_ports[@]}")
kill -TERM "$pid"
wait "$pid" || fail "SIGTERM: status $?"

# TLS and tokens.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 \
    -addext 'subjectAltName=IP:127.0.0.1' -keyout key.pem -out cert.pem 2>out ||
    fail "no certificate: $(tail -n 1 out)"
sha() { printf %s "$1" | sha256sum | cut -d ' ' -f 1; }
cat >>"$mark" <<END
security:
  tls: {cert: $dir/cert.pem, key: $dir/key.pem}
  tokens:
  - {name: ann, scope: read, sha256: $(sha reader)}
  - {name: bob, scope: submit, sha256: $(sha writer)}
END
serve
grep -q '^HTTP  https://' serve.out || fail "the address over TLS: $(grep HTTP serve.out)"
book secure
curl -sS --cacert cert.pem --http2 --max-time 20 -D headers -o answer \
    -H 'content-type: application/grpc' -H 'te: trailers' -H 'authorization: Bearer reader' \
    --data-binary @frame \
    "https://127.0.0.1:${ports[0]}/training.TrainingService/GetTrainingStatus" 2>out ||
    fail "curl over TLS: $(cat out)"
grep -qa 'Exit code 0' answer || fail "the answer over TLS has no message: $(cat headers)"
curl -sS --cacert cert.pem --http1.1 --max-time 20 "https://127.0.0.1:${ports[0]}/" >out 2>&1 &&
    fail "a client that does not offer h2 is served"
kill -TERM "$pid"
wait "$pid" || fail "SIGTERM: status $?"
exit 0
