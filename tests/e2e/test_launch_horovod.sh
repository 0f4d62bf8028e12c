#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Programs of Horovod find each other through the rendezvous of `tandem launch --framework horovod`,
# on one host and on several: what they say is replayed by horovod_rank.py.
. "$(dirname "$0")/lib.sh"
rank="$source/tests/e2e/horovod_rank.py"
printf '#!/bin/sh\nshift\nexec "$@"\n' >shell # other hosts are folders of this one
chmod +x shell
if ! "$tandem" launch -n 1 --framework horovod -- true 2>out; then
    grep -q 'built without an HTTP server' out || fail "no server"
    echo "test_launch_horovod: needs TD_SERVICE: skipped"
    exit 77
fi
# ranks LINE...: the output has these, of ranks 0, 1, ...
ranks() {
    local i=0 line
    for line; do
        grep -qx "\[$i\] rank $i of $#: $line" out || fail "no rank $i: $line"
        i=$((i + 1))
    done
}
run 0 "$tandem" launch -n 1 --framework horovod -- python3 "$rank"
ranks 'local 0 of 1, cross 0 of 1'
run 0 "$tandem" launch -n 4 --framework horovod -- python3 "$rank"
ranks 'local '{0,1,2,3}' of 4, cross 0 of 1'
run 0 "$tandem" launch --hosts localhost:2,b:1 --ssh ./shell --listen 127.0.0.1 \
    --framework horovod -- python3 "$rank"
ranks 'local 0 of 2, cross 0 of 2' 'local 1 of 2, cross 0 of 1' 'local 0 of 1, cross 1 of 2'
# Started again, with a store that knows nothing of the first time.
run 0 "$tandem" launch -n 2 --restarts 1 --framework horovod -- sh -c \
    'python3 "$0" && [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]' "$rank"
ranks 'local '{0,1}' of 2, cross 0 of 1'
# gloo listens where the others reach this host.
run 0 "$tandem" launch -n 1 --framework horovod -- sh -c 'echo $HOROVOD_GLOO_IFACE'
has '^\[0\] lo$'
# Nothing listens that was not asked for.
run 0 "$tandem" launch -n 1 -- env
! grep -q HOROVOD_GLOO out || fail "a server that nobody asked for"
echo "test_launch_horovod: good"
