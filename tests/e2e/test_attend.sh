#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tandem attend` and what its program starts: a signal reaches all of it, nothing outlives a
# SIGKILL, and who waits for other ranks can be stopped.
. "$(dirname "$0")/lib.sh"
echo 'echo $$ >inner; while :; do sleep 0.1; done' >inner.sh
begun() { [ -s inner ]; }
inner_gone() { [ -z "$(tr -d '\0' 2>/dev/null <"/proc/$(cat inner)/cmdline")" ]; } 2>/dev/null
ended() { ! kill -0 "$pid" 2>/dev/null; }
attend() {
    rm -f inner
    "$tandem" attend --no-results "$@" >attend.out 2>&1 &
    pid=$!
}

for signal in TERM KILL; do
    attend -- sh -c "sh inner.sh $mark; true"
    soon begun || fail "the program has not begun"
    kill -$signal $pid
    soon inner_gone || { kill -KILL "$(cat inner)"; fail "SIG$signal leaves a process behind"; }
    wait $pid && fail "SIG$signal: a success"
done
# Its own exit status, and nothing that it left running is ended with it.
attend -- sh -c "sh inner.sh $mark & until [ -s inner ]; do sleep 0.1; done; exit 7"
wait $pid
[ $? = 7 ] || fail "another status"
inner_gone && fail "what the program has left running was ended"
kill -KILL "$(cat inner)"

# Rank 0 does not come: a signal is not put off until it is given up.
export RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TANDEM_STORE=127.0.0.1:9
TANDEM_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export TANDEM_SECRET
attend --framework horovod -- true
waits() { find /proc/$pid/fd -lname '*signalfd*' 2>/dev/null | grep -q .; }
soon waits || fail "it does not wait"
kill -TERM $pid
soon ended || { kill -KILL $pid; fail "SIGTERM is put off"; }
wait $pid && fail "a success without others"
grep -q 'stopped while rank 0 was waited for' attend.out || fail "$(cat attend.out)"
