# SPDX-License-Identifier: Apache-2.0
# What scripts that run `tandem` share; sourced at their beginning. Afterwards the script is in a
# folder of its own, $dir, which goes with it.
# shellcheck shell=bash disable=SC2034 # variables are the script's to use
set -uo pipefail
build=$(realpath "${TD_BUILD:-build}")
tandem=$build/tandem
source=$(realpath "${TD_SOURCE:-$PWD}")
terminal=$source/tests/e2e/terminal.py
dir=$(mktemp -d)
mark=$dir/job.yaml # an argument by which processes of this test are found
end_all() { for p in $(pgrep -f "$mark"); do kill -KILL "$p" 2>/dev/null; done; }
trap 'end_all; rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() { echo "$(basename "$0" .sh): $*" >&2; [ -f out ] && cat out >&2; exit 1; }
# wait_for SECONDS COMMAND...: until it succeeds
wait_for() {
    local end=$((SECONDS + $1)); shift
    until "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.02; done
}
dead() { ! pgrep -f "$mark" >/dev/null; }
# run EXPECTED_STATUS COMMAND...: output in ./out
run() {
    local want=$1 got; shift
    timeout 100 "$@" >out 2>&1; got=$?
    [ "$got" = "$want" ] || fail "$* gave $got instead of $want"
}
has() { grep -q -- "$1" out || fail "no '$1' in the output"; }
digest() { grep -o 'sha256:[0-9a-f]*' "${1:-out}" | tail -n 1; }
# same WHAT: the last digest is $want, that of one rank
same() { [ "$(digest)" = "$want" ] || fail "$1: another digest than that of one rank"; }
