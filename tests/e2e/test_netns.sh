#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Two network namespaces, joined by a pair of virtual cards, as two hosts: launch, rendezvous, all
# collectives, flat and hierarchical, of which the latter sends less over the link; a link that is
# cut, which ends in errors and not in a hang. Needs root.
net=77
. "$(dirname "$0")/two_hosts.sh"
world=$build/tests/prog_world
crossed=()

launch() { # ARGUMENTS...: as on the first host; the second is reached by `ip netns exec`
    limited ip netns exec $a "$tandem" launch --hosts "localhost:2,$b:2" --ssh "ip netns exec" \
        --listen 10.213.77.1 "$@"
}
run() { launch "$@" >out 2>&1 || fail "launch $*"; }

run -- sh -c 'echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $HOROVOD_CROSS_RANK $MASTER_ADDR"'
sort out |
    diff - <(printf '[%d] %d %d 2 %d 10.213.77.1\n' 0 0 0 0 1 1 1 0 2 2 0 1 3 3 1 1) ||
    fail "environment over two hosts"

# All collectives, flat and hierarchical; the same bits as on one host.
run -- "$world" all direct butterfly ring hierarchical
[ "$(grep -c 'good over tcp' out)" = 4 ] || fail "collectives over two hosts"
want=$("$tandem" launch -n 4 -- "$world" digest direct | sed 's/.*digest //' | sort -u)
for algo in direct butterfly hierarchical; do
    run -- "$world" digest $algo
    [ "$(sed 's/.*digest //' out | sort -u)" = "$want" ] || fail "$algo: other bits: $want"
done

# Without the launcher: a folder that both share is enough.
by_hand() { # RANK NAMESPACE
    RANK=$1 WORLD_SIZE=2 TANDEM_RENDEZVOUS=$dir limited ip netns exec "$2" "$world" join
}
by_hand 0 $a >out 2>&1 &
by_hand 1 $b >out2 2>&1 && wait $! && grep -q 'of 2 over tcp' out ||
    { cat out2 >&2; fail "ranks did not meet through a shared folder"; }

# Encrypted.
run --tls -- "$world" all direct

# Hierarchical crosses the link once per host, not once per rank. What a slow link makes of that is
# printed, not judged.
sent() { ip netns exec $a cat /sys/class/net/va$$/statistics/tx_bytes; }
for algo in direct hierarchical; do
    before=$(sent)
    run -- "$world" speed 1000000 $algo
    crossed[${#crossed[@]}]=$(($(sent) - before))
done
echo "test_netns: bytes over the link: flat ${crossed[0]}, hierarchical ${crossed[1]}"
[ "${crossed[1]}" -lt "${crossed[0]}" ] || fail "hierarchical does not send less"
slow() { ip netns exec "$1" tc qdisc add dev "$2" root tbf rate 100mbit burst 64kb latency 50ms; }
if slow $a va$$ 2>tc && slow $b vb$$ 2>>tc; then
    run -- "$world" speed 1000000 direct hierarchical
    echo "test_netns: 1 MB on 100 Mbit/s: $(sed -n 's/^\[0\] \(.*\)/\1 ms/p' out | paste -sd,)"
    ip netns exec $a tc qdisc del dev va$$ root
    ip netns exec $b tc qdisc del dev vb$$ root
else
    echo "test_netns: no token-bucket filter in this kernel: slow link skipped"
fi

# Cut the link in the middle. Silence is noticed long before the calls' own deadline.
rm -f out # what it held must not be taken for new
launch --env PROG_TIMEOUT_MS=$((1000 * patience)) --grace ${patience}s -- sh -c \
    "trap '' TERM; $world loop 1000 $mark" >out 2>&1 &
job=$!
turning() { [ "$(grep -cs turning out)" = 4 ]; }
soon turning || fail "ranks do not turn"
t0=$SECONDS
ip -n $b link set vb$$ down
wait $job
got=$?
echo "test_netns: a cut link ended the job in $((SECONDS - t0)) s"
[ $((SECONDS - t0)) -lt $patience ] || fail "a cut link was noticed by the calls' deadline only"
[ $got = 3 ] || fail "a cut link gave $got"
[ "$(grep -cE 'ETIMEDOUT|EPEER' out)" -ge 4 ] || fail "not all ranks have an error"
none_left "a cut link"
echo "test_netns: good"
