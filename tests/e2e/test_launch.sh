#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# tandem launch as a user sees it: environment, output, failures, signals, orphans, wrong usage.
. "$(dirname "$0")/lib.sh"
world=$build/tests/prog_world
# go EXPECTED_STATUS ARGUMENTS...: tandem launch
go() { run "$1" "$tandem" launch "${@:2}"; }

# What each framework looks for.
go 0 -n 3 --env EXTRA=a=b -- env
for r in 0 1 2; do
    for v in RANK=$r LOCAL_RANK=$r WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 \
        HOROVOD_RANK=$r HOROVOD_SIZE=3 HOROVOD_LOCAL_RANK=$r HOROVOD_CROSS_RANK=0 \
        HOROVOD_CROSS_SIZE=1 OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=3 \
        OMPI_COMM_WORLD_LOCAL_RANK=$r TANDEM_RANK=$r TANDEM_SIZE=3 EXTRA=a=b; do
        grep -qx "\[$r\] $v" out || fail "rank $r lacks $v"
    done
done
[ "$(grep -c 'MASTER_PORT=' out)" = 3 ] || fail "MASTER_PORT"
[ "$(grep -o 'MASTER_PORT=.*' out | sort -u | wc -l)" = 1 ] || fail "MASTER_PORT differs"
grep -o 'TF_CONFIG=.*' out | sed 's/TF_CONFIG=//' | python3 -c '
import json, sys
tasks = [json.loads(line) for line in sys.stdin]
workers = tasks[0]["cluster"]["worker"]
assert len(workers) == len(set(workers)) == 3, workers
assert sorted(t["task"]["index"] for t in tasks) == [0, 1, 2]
' || fail "TF_CONFIG"
! tr '\0' '\n' <"/proc/$$/environ" | grep -q TANDEM_SECRET || fail "the test runs inside a launch"
has 'TANDEM_SECRET_FILE=/proc/'

# Lines stay whole, standard error too; a log file for each rank.
go 0 -n 4 --log-dir logs -- sh -c \
    'i=0; while [ $i -lt 300 ]; do echo "out-$RANK-aaaaaaaaaaaaaaaaaaaaaaaa"; i=$((i+1)); done
     echo "err-$RANK" >&2; printf "no newline"'
[ "$(grep -cE '^\[([0-3])\] out-\1-a{24}$' out)" = 1200 ] || fail "lines were mixed"
for r in 0 1 2 3; do
    grep -qx "\[$r\] err-$r" out || fail "standard error of rank $r"
    [ "$(grep -c "^out-$r-" "logs/rank-$r.log")" = 300 ] || fail "log of rank $r"
    grep -qx 'no newline' "logs/rank-$r.log" || fail "last line of rank $r"
done

# The first failure: its status, its last lines, its name last; the others are ended.
go 7 -n 4 -- sh -c 'if [ $RANK = 2 ]; then echo the cause; exit 7; fi
    while :; do sleep 1000; done' "$mark"
tail -n 1 out | grep -q 'exit status 7: rank 2 of 4' || fail "the failed rank is not named"
tail -n 2 out | head -n 1 | grep -qx '\[2\] the cause' || fail "no last lines"
none_left "a failure"
go 137 -n 2 -- sh -c 'if [ $RANK = 1 ]; then kill -9 $$; fi
    while :; do sleep 1000; done' "$mark"
has 'signal 9.*rank 1 of 2'
go 7 -n 2 --grace 200ms -- sh -c \
    'trap "" TERM; if [ $RANK = 0 ]; then exit 7; fi; while :; do sleep 1000; done' "$mark"
none_left "a rank that ignores SIGTERM"
go 127 -n 2 -- "$dir/no-such-program"
has 'cannot run'

# kill -9 of the launcher, or of its agent, leaves nobody: also no grandchildren, not even those
# that made a session of their own.
for victim in launcher agent; do
    rm -f out # what it held must not be taken for new
    "$tandem" launch -n 3 -- sh -c "setsid sh -c 'while :; do sleep 1000; done' $mark &
        sh -c 'while :; do sleep 1000; done' $mark & echo up; wait" "$mark" >out 2>&1 &
    launcher=$!
    said_soon '^\[2\] up'
    if [ $victim = launcher ]; then kill -9 $launcher; else kill -9 "$(pgrep -P $launcher)"; fi
    wait $launcher 2>/dev/null
    none_left "kill -9 of the $victim"
done

# SIGTERM to the agent, as of a scheduler that wants the host back: no rank can go alone, so all end
# as after a signal to the launcher.
rm -f out
"$tandem" launch -n 2 -- sh -c 'trap "echo saved; exit" TERM; echo up
    while :; do sleep 1000 & wait; done' "$mark" >out 2>&1 &
launcher=$!
said_soon '^\[0\] up' && said_soon '^\[1\] up'
kill -TERM "$(pgrep -P $launcher)"
wait $launcher; got=$?
[ $got = 143 ] && [ "$(grep -c saved out)" = 2 ] || fail "SIGTERM to the agent gave $got"
none_left "SIGTERM to the agent"

# Ctrl-C.
rm -f out
"$tandem" launch -n 2 -- sh -c 'echo up; while :; do sleep 1000; done' "$mark" >out 2>&1 &
launcher=$!
said_soon '^\[1\] up'
kill -INT $launcher
wait $launcher; got=$?
[ $got = 130 ] || fail "Ctrl-C gave $got"
none_left "Ctrl-C"

# Two signals that come together are one: ranks have their time to end. (A shell that has just begun
# a program hears of a signal when that has ended; one in wait, at once.)
rm -f out
"$tandem" launch -n 2 -- sh -c 'trap "echo saved; exit" TERM; echo up
    while :; do sleep 1000 & wait; done' "$mark" >out 2>&1 &
launcher=$!
said_soon '^\[0\] up' && said_soon '^\[1\] up'
kill -STOP $launcher
kill -INT $launcher
kill -TERM $launcher
kill -CONT $launcher
wait $launcher; got=$?
[ $got = 130 ] && [ "$(grep -c saved out)" = 2 ] || fail "SIGINT with SIGTERM gave $got"
none_left "two signals"

# The second Ctrl-C of somebody in a hurry: nobody is waited for.
rm -f out
"$tandem" launch -n 2 --grace 1000s -- sh -c 'trap "echo heard" TERM; echo up
    while :; do sleep 1000 & wait; done' "$mark" >out 2>&1 &
launcher=$!
said_soon '^\[0\] up' && said_soon '^\[1\] up'
kill -INT $launcher
said_soon '^\[0\] heard' && said_soon '^\[1\] heard'
ended_by_more() { ! kill -INT $launcher 2>/dev/null; } # the first ones may be the same moment's
soon ended_by_more || fail "Ctrl-C again and again does not end it"
wait $launcher; got=$?
[ $got = 130 ] || fail "two Ctrl-C gave $got"
none_left "two Ctrl-C"

# Ctrl-C with a reader that does not read; a full disk; no descriptors at all.
python3 - "$tandem" "$mark" <<'END' || fail "Ctrl-C with a reader that does not read"
import fcntl, signal, struct, subprocess, sys, termios, time
p = subprocess.Popen([sys.argv[1], "launch", "-n", "2", "--", "sh", "-c",
                      "while :; do echo $0; done", sys.argv[2]], stdout=subprocess.PIPE)
end = time.time() + 100
held, since = 0, time.time() # how much a pipe holds depends on the sizes of the writes
while held < 4096 or time.time() - since < 0.3:
    assert time.time() < end, held
    n = struct.unpack("i", fcntl.ioctl(p.stdout, termios.FIONREAD, bytes(4)))[0]
    held, since = n, time.time() if n != held else since
    time.sleep(0.01)
p.send_signal(signal.SIGINT)
sys.exit(p.wait(100) != 130)
END
none_left "Ctrl-C of a blocked launcher"
timeout $patience "$tandem" launch -n 2 --grace 1000s -- echo hi >/dev/full 2>out &&
    fail "a full disk is good"
has 'cannot write the output.*No space left'
timeout $patience "$tandem" launch -n 2 -- "$world" join <&- >&- 2>&- || fail "closed descriptors"

# Started by who ignores the ends of its children, which is inherited.
run 7 python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$tandem" launch -n 2 -- sh -c 'exit 7'

# Nonsense.
for args in "-n 0 -- true" "-n x -- true" "-n 2" "-- true" "--nonsense -n 2 -- true" \
    "-n 2 --grace x -- true" "-n 2 --env X -- true" "-n 9 --hosts localhost:2 -- true" \
    "--hosts localhost:0 -- true" "--hosts localhost:1,localhost:1 -- true" \
    "--hosts-file $dir/none -- true"; do
    # shellcheck disable=SC2086
    go 2 $args
    [ "$(wc -l <out)" -le 2 ] || fail "more than a line for: $args"
done
go 1 --hosts localhost:1,nowhere:1 --ssh "sh -c" --listen 127.0.0.1 -- true
has 'cannot start an agent on host nowhere'

# Ranks meet.
go 0 -n 4 -- "$world" join
[ "$(grep -c 'of 4 over shm' out)" = 4 ] || fail "ranks did not meet"
TANDEM_TRANSPORT=tcp go 0 -n 3 --tls -- \
    sh -c 'stat -c "%a %n" "$TANDEM_TLS_DIR"; exec "$0" all' "$world"
[ "$(grep -c 'good over tcp' out)" = 3 ] && has '^\[1\] 700 /' || fail "TLS"
[ ! -e "$(sed -n 's/^\[1\] 700 //p' out)" ] || fail "a TLS key is left"

# Who comes with another certificate, another secret or without TLS is refused, the log says so
# once, and the job goes on.
go 0 -n 1 --tls -- sh -c 'cp -r "$TANDEM_TLS_DIR" "$0"' "$dir/tls"
(umask 077; printf '%064d' 7 >secret)
TANDEM_TRANSPORT=tcp go 0 -n 3 --tls --env "dir=$dir" -- sh -c '
    for v in "TANDEM_TLS_DIR=$dir/tls" "TANDEM_SECRET_FILE=$dir/secret" TANDEM_TLS_DIR=; do
        [ $RANK != 0 ] || ! env PROG_SETUP_MS=10000 "$v" "$0" join || echo intruder
    done
    exec "$0" all' "$world"
[ "$(grep -c 'good over tcp' out)" = 3 ] || fail "strangers harmed a job"
[ "$(grep -c '^\[0\] world: ' out)" = 3 ] || fail "not all strangers were refused"
[ "$(grep -c ' refused a connection' out)" = 1 ] || fail "strangers were not logged once"
! grep -q intruder out || fail "a stranger was let in"

# 200 ranks too. How long it takes is printed, not judged: tests run side by side.
TIMEFORMAT='%U %S %R'
{ time go 0 -n 200 -- "$world" join; } 2>times
[ "$(grep -c 'of 200 over shm' out)" = 200 ] || fail "200 ranks did not meet"
tail -n 1 times | awk '{ printf "test_launch: 200 ranks started, met and left in %.2f s " \
    "(%.2f s of two cores)\n", $3, ($1 + $2) / 2 }'
echo "test_launch: good"
