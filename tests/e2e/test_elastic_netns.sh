#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Elastic ranks on two network namespaces as two hosts: a link that is cut leaves one half going on,
# and the other stopping with one line; a short cut costs nobody anything. Needs root.
set -uo pipefail
build=$(realpath "${TD_BUILD:-build}")
tandem=$build/tandem
prog=$build/tests/prog_members
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
    echo "test_elastic_netns: needs root and ip: skipped"
    exit 77
fi
dir=$(mktemp -d)
a=tea$$ b=teb$$
clean() {
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
    rm -rf "$dir"
}
trap clean EXIT
fail() { echo "test_elastic_netns: $*" >&2; cat "$dir/out" >&2; exit 1; }
if ! { ip netns add $a && ip netns add $b && ip netns exec $a true &&
    ip link add va$$ netns $a type veth peer name vb$$ netns $b; } 2>"$dir/out"; then
    echo "test_elastic_netns: no network namespaces here: skipped: $(cat "$dir/out")"
    exit 77
fi
{
    ip -n $a addr add 10.213.78.1/24 dev va$$ && ip -n $b addr add 10.213.78.2/24 dev vb$$ &&
        ip -n $a link set va$$ up && ip -n $b link set vb$$ up &&
        ip -n $a link set lo up && ip -n $b link set lo up
} >"$dir/out" 2>&1 || fail "cannot join the namespaces"

wait_for() {
    local end=$((SECONDS + $1)); shift
    until "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.02; done
}
has() { grep -q -- "$1" "$dir/out" 2>/dev/null; }
must() { wait_for 30 has "$1" || fail "no '$1' in the output"; }
start() { # ARGUMENTS...
    rm -f "$dir/out"
    ip netns exec $a "$tandem" launch --hosts "localhost:2,$b:2" --ssh "ip netns exec" \
        --listen 10.213.78.1 -n 1:4 "$@" >"$dir/out" 2>&1 &
    launcher=$!
}
ends() {
    wait "$launcher"
    local got=$?
    [ "$got" = "$1" ] || fail "exit status $got instead of $1"
}

# Cut for good: the half with the first host goes on, the other stops.
start --lease 300ms --heartbeat 50ms -- "$prog" steps 300 20
must 'generation 1 rank 3 of 4'
ip -n $a link set va$$ down
must 'generation 2, 2 ranks: host '"$b"' was lost, and rank 2 with it: its agent does not answer'
must "host $b leaves the job: too few of the other hosts answer"
ends 0
[ "$(grep -c ' done 300' "$dir/out")" = 2 ] || fail "not both ranks of the first host were done"
[ "$(grep -c 'leaves the job' "$dir/out")" = 1 ] || fail "more than one line"

# Cut for less than the lease: nobody is lost.
ip -n $a link set va$$ up
start --lease 5s --heartbeat 50ms -- "$prog" steps 100 20
must 'generation 1 rank 3 of 4'
ip -n $a link set va$$ down
sleep 0.5 # the fault itself
ip -n $a link set va$$ up
ends 0
! has 'generation 2' || fail "a short cut cost a generation"
[ "$(grep -c ' done 100' "$dir/out")" = 4 ] || fail "not all were done"
echo "test_elastic_netns: good"
