#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Two workers of TensorFlow's MultiWorkerMirroredStrategy in a group of a service, with the
# TF_CONFIG that it gives them: they train together, and have the same weights.
# TD_TENSORFLOW_PYTHON is a Python with TensorFlow; else one is made on first use in
# BUILD/venv-tensorflow, where pip can.
. "$(dirname "$0")/lib.sh"
. "$source/tests/e2e/serve.sh"
skip() { echo "test_serve_tensorflow: $*: skipped"; exit 77; }
command -v curl >/dev/null || skip "curl is not installed"
venv=$build/venv-tensorflow
python=${TD_TENSORFLOW_PYTHON:-$venv/bin/python}
make_venv() {
    python3 -m venv "$venv" && limited "$venv/bin/pip" install --quiet \
        --disable-pip-version-check --retries 1 tensorflow-cpu==2.15.1 && touch "$venv/ready"
}
if [ -z "${TD_TENSORFLOW_PYTHON:-}" ]; then
    grep -q microhttpd "$build/tandem.libraries" || skip "a build with a sanitizer"
    exec 9>"$venv.lock"
    flock 9 # who comes second waits for what the first one makes
    [ -e "$venv/ready" ] || make_venv >out 2>&1 ||
        skip "TensorFlow cannot be installed: $(tail -n 1 out)"
    exec 9>&-
fi
"$python" -c 'import tensorflow' >out 2>&1 || skip "$python has no TensorFlow that runs here"

config=$dir/service.yaml
echo 'capacity: {slots: 2}' >service.yaml
serve first
printf '%s\n' 'name: mirrored' 'framework: tensorflow' 'resources: {members: 2}' 'grace_s: 5' \
    "env: {TF_CPP_MIN_LOG_LEVEL: '2'}" \
    "command: ['$python', '$source/tests/e2e/tensorflow_worker.py', '$mark']" >spec.yaml
submit --spec spec.yaml
await "$job" succeeded
for rank in 0 1; do ask "$server/v1/jobs/$job/logs?member=$rank"; done >out
for rank in 0 1; do
    grep -q "^worker $rank of 2: replicas 2, weights " out || fail "worker $rank did not train"
done
[ "$(grep -o 'weights .*' out | sort -u | wc -l)" = 1 ] || fail "workers have other weights"
end_service
