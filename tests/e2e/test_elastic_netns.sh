#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Elastic ranks on two network namespaces as two hosts: a link that is cut leaves one half going on,
# and the other stopping with one line; a short cut costs nobody anything. Needs root.
net=78
. "$(dirname "$0")/two_hosts.sh"
prog=$build/tests/prog_members

must() { said_soon "$1"; }
start() { # ARGUMENTS...: steps go on until `ends`
    rm -f out
    : >"$mark"
    ip netns exec $a "$tandem" launch --hosts "localhost:2,$b:2" --ssh "ip netns exec" \
        --listen 10.213.78.1 -n 1:4 --heartbeat 50ms "$@" -- "$prog" steps 1 20 "$mark" >out 2>&1 &
    launcher=$!
}
ends() {
    rm -f "$mark"
    wait "$launcher"
    local got=$?
    [ "$got" = "$1" ] || fail "exit status $got instead of $1"
    none_left "the launch"
}

# Cut for good: the half with the first host goes on, the other stops.
start --lease 1500ms
must 'generation 1 rank 3 of 4'
ip -n $a link set va$$ down
must "now 2 ranks (generation 2): host $b was lost, and rank 2 with it: its agent does not answer"
must "host $b leaves the job: it has lost contact with a majority of the hosts"
ends 0
[ "$(grep -c ' done [0-9]' out)" = 2 ] || fail "not both ranks of the first host were done"
[ "$(grep -c 'leaves the job' out)" = 1 ] || fail "more than one line"

# Cut for less than the lease: nobody is lost.
ip -n $a link set va$$ up
start --lease 10s
must 'generation 1 rank 3 of 4'
ip -n $a link set va$$ down
sleep 0.5 # the fault itself
ip -n $a link set va$$ up
ends 0
! said 'generation 2' || fail "a short cut cost a generation"
[ "$(grep -c ' done [0-9]' out)" = 4 ] || fail "not all were done"
echo "test_elastic_netns: good"
