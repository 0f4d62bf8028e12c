# SPDX-License-Identifier: Apache-2.0
# Two network namespaces, $a and $b, joined by a pair of virtual cards, va$$ and vb$$, as two hosts;
# they go with the script that sources this, and are named after its folder. Expects $net, a number
# of its own for each script: addresses are 10.213.$net.1 and .2. Skips where there are none.
# shellcheck shell=bash disable=SC2034,SC2154 # variables are the script's
. "$(dirname "$0")/lib.sh"
name=$(basename "$0" .sh)
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
    echo "$name: needs root and ip: skipped"
    exit 77
fi
a=td${net}a${dir##*-} b=td${net}b${dir##*-}
also_clean() {
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
}
if ! { ip netns add $a && ip netns add $b && ip netns exec $a true &&
    ip link add va$$ netns $a type veth peer name vb$$ netns $b; } 2>out; then
    echo "$name: no network namespaces here: skipped: $(cat out)"
    exit 77
fi
{
    ip -n $a addr add "10.213.$net.1/24" dev va$$ &&
        ip -n $b addr add "10.213.$net.2/24" dev vb$$ &&
        ip -n $a link set va$$ up && ip -n $b link set vb$$ up &&
        ip -n $a link set lo up && ip -n $b link set lo up
} >out 2>&1 || fail "cannot join the namespaces"
