# SPDX-License-Identifier: Apache-2.0
# For tests with real components of others (engines, stores, batch systems): what is missing is said
# in one line, and the test is skipped; what was started in the background goes with the script.
# shellcheck shell=bash disable=SC2034,SC2154 # variables are the script's
. "$(dirname "$0")/lib.sh"
name=$(basename "$0" .sh)
background_pids=()

skip() { echo "$name: $*: skipped"; exit 77; }
need_root() { [ "$(id -u)" = 0 ] || skip "needs root"; }
need_command() { command -v "$1" >/dev/null || skip "$1 is not installed"; }
# background COMMAND...: in a session of its own, output in background.log
background() {
    setsid "$@" >>background.log 2>&1 &
    background_pids+=($!)
}
release() { :; } # a script's own, after what was started has ended
also_clean() {
    local pid
    for pid in "${background_pids[@]:-}"; do
        [ -n "$pid" ] || continue
        kill -TERM "$pid" 2>/dev/null
        timeout 20 tail --pid="$pid" -f /dev/null || kill -KILL -- "-$pid" 2>/dev/null
    done
    release
}
ready() { soon "$@" >/dev/null 2>&1 || { tail -5 background.log; fail "not ready: $*"; }; }
