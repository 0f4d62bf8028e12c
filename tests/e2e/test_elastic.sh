#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# An elastic launch as a user sees it: kill -9 and SIGSTOP of ranks and agents, on one host and on
# three, spares, crash loops, other sizes, changing hosts, orders; and nothing is left behind.
. "$(dirname "$0")/lib.sh"
prog=$build/tests/prog_members
cat >rsh <<'SH'
#!/bin/sh
# A remote shell to "hosts" that are this one; notes the number of the agent that it becomes.
[ "$1" != nowhere ] || { echo "no route to $1" >&2; exit 255; }
echo $$ >"${0%/*}/agent-$1"
shift
exec "$@"
SH
chmod +x rsh

must() { said_soon "$1"; }
count() { [ "$(grep -c -- "$1" out)" -ge "$2" ]; }
# start ARGUMENTS...: tandem launch in the background; its number in $launcher. Steps go on until
# `ends`: how fast this machine is does not matter.
start() {
    case " $* " in *" --lease "*) ;; *) set -- --lease 10s "$@" ;; esac # no faults by load
    rm -f out agent-*
    : >"$mark"
    "$tandem" launch "$@" >out 2>&1 &
    launcher=$!
}
# ends STATUS: the steps end, and the launch does so; it leaves no process
ends() {
    rm -f "$mark"
    ended "$1"
}
# ended STATUS: the launch ends so by itself, in the middle of its steps
ended() {
    wait "$launcher"
    local got=$?
    [ "$got" = "$1" ] || fail "exit status $got instead of $1"
    none_left "the launch"
}
steps=("$prog" steps 20 10 "$mark")
pid_of() { # RANK GENERATION: of the process that has this rank
    local slot
    slot=$(grep -o "^\[[0-9]*\] generation $2 rank $1 of" out | tail -n 1 | grep -o '^\[[0-9]*\]')
    grep -F "$slot begin " out | tail -n 1 | sed 's/.*begin //'
}
# agent_of [HOST]: numbers of processes say nothing about who was started first
agent_of() {
    if [ $# = 1 ]; then cat "agent-$1"; return; fi
    cat agent-* >others 2>/dev/null
    pgrep -P "$launcher" | grep -vxFf others
}
# all_in GENERATION SIZE: all ranks of this generation, or of a later one, of this size are there
is_in() {
    awk -v g="$1" -v n="$2" '$2 == "generation" && $3 >= g && $7 == n && ++seen[$3] == n {
        found = 1 } END { exit !found }' out 2>/dev/null
}
all_in() { soon is_in "$1" "$2" || fail "generation $1 of $2 ranks"; note; }

# Quiet.
start -n 3 --elastic -- "${steps[@]}"
all_in 1 3
ends 0
count ' done [0-9]' 3 || fail "not all were done"
! said 'generation 2' || fail "a generation too many"

# kill -9 of each rank: the others go on, and a new process comes. Who is slow to die has closed its
# connections, and made calls of the others fail, before it is dead: still it is its death that they
# go on from.
for rank in 0 1 2; do
    start -n 3 --elastic -- "${steps[@]}" 20000
    all_in 1 3
    kill -9 "$(pid_of $rank 1)"
    must "now 2 ranks (generation 2): rank $rank (host localhost, pid [0-9]*)"\
' was killed by signal 9'
    all_in 2 2
    all_in 3 3
    ends 0
    count ' done [0-9]' 3 || fail "not all were done after the death of rank $rank"
done

# A spare takes the place at once.
start -n 2 --elastic --spares 1 -- "${steps[@]}"
all_in 1 2
soon count '^\[[0-2]\] begin' 3 || fail "no spare"
kill -9 "$(pid_of 1 1)"
all_in 2 2
ends 0

# A rank that is stopped for longer than the lease is killed, and does not come back.
start -n 2 --elastic --lease 2s --heartbeat 50ms -- "${steps[@]}"
all_in 1 2
victim=$(pid_of 0 1)
kill -STOP "$victim"
must "now 1 rank (generation 2): rank 0 (host localhost, pid $victim)"\
' was silent for more than 2000 ms'
kill -CONT "$victim" 2>/dev/null && fail "a fenced process lives"
all_in 3 2
ends 0

# The others do not wait for it that long; one that comes back within its lease has a place again.
start -n 2 --elastic --lease 20s --heartbeat 50ms -- "${steps[@]}"
all_in 1 2
victim=$(pid_of 1 1)
kill -STOP "$victim"
must "now 1 rank (generation 2): rank 1 on host localhost is stopped: continuing without it"
all_in 2 1
kill -CONT "$victim"
all_in 3 2
[ "$(pid_of 1 3)" = "$victim" ] || fail "another process took the place"
ends 0

# SIGTERM lets a rank go at a step border, with its place.
start -n 3 --elastic -- "${steps[@]}"
all_in 1 3
kill -TERM "$(pid_of 1 1)"
all_in 2 2
must 'end: it was asked to go'
ends 0
! said 'generation 3' || fail "a rank that was asked to go was replaced"

# So it is with one rank on each of two hosts at once: both places are gone, and those that were not
# asked stay.
start --hosts localhost:2,b:2 --listen 127.0.0.1 --ssh "$dir/rsh" -n 1:4 -- "${steps[@]}"
all_in 1 4
for rank in 0 1 2 3; do pids[rank]=$(pid_of $rank 1); done
kill -STOP "$(agent_of)" "$(agent_of b)"
kill -TERM "${pids[1]}" "${pids[3]}"
kill -CONT "$(agent_of)" "$(agent_of b)"
soon count 'end: it was asked to go' 2 || fail "not both that were asked have gone"
all_in 2 2
kill -0 "${pids[0]}" "${pids[2]}" || fail "one that was not asked has gone"
[ "$(grep -c ' begin ' out)" = 4 ] || fail "a place was filled again"
ends 0
[ "$(grep -c ' begin ' out)" = 4 ] || fail "a place was filled again"

# Another size: grow, shrink, refuse.
start -n 2 --elastic --control control -- "${steps[@]}"
all_in 1 2
[ "$(stat -c %a control)" = 600 ] || fail "mode of the control file"
"$tandem" scale control 4 >/dev/null || fail "scale 4"
all_in 2 4
"$tandem" scale control 1 >/dev/null || fail "scale 1"
all_in 3 1
"$tandem" scale control 9999 2>/dev/null && fail "scale 9999 was accepted"
ends 0
[ ! -e control ] || fail "the control file was left"
"$tandem" scale control 2 2>/dev/null && fail "scale of a job that is over"

# A crash loop ends with what happens again and again as the last line, its status ours.
start -n 2 --elastic --restarts 2 -- "$prog" crash "$mark"
ends 7
tail -n 1 out |
    grep -q '3 failures without a step forward; the last: .*exit status 7: the disk is made of' ||
    fail "no cause in the last line"
start -n 2 --elastic -- "$dir/no-such-program"
ends 127
start -n 2 --elastic -- true
ends 0

# kill -9 of the launcher, or of the only agent, leaves nobody; Ctrl-C ends all.
for victim in launcher agent; do
    start -n 2 --elastic -- "${steps[@]}"
    all_in 1 2
    if [ $victim = agent ]; then kill -9 "$(agent_of)"; else kill -9 "$launcher"; fi
    wait "$launcher" 2>/dev/null
    none_left "kill -9 of the $victim"
done
start -n 2 --elastic --grace 500ms -- "${steps[@]}"
all_in 1 2
kill -INT "$launcher"
ended 130

# A stopped agent that is alone goes on where it was.
start -n 2 --elastic --lease 2s --heartbeat 50ms -- "${steps[@]}"
all_in 1 2
kill -STOP "$(agent_of)"
sleep 2.5 # the fault itself, longer than the lease
kill -CONT "$(agent_of)"
ends 0
! said 'generation 2' || fail "ranks were fenced off by an agent that had been stopped"

# So does a job whose launcher is stopped: its output waits.
start -n 2 --elastic --lease 2s --heartbeat 50ms -- "${steps[@]}"
all_in 1 2
kill -STOP "$launcher"
sleep 2.5 # the fault itself, longer than the lease
kill -CONT "$launcher"
ends 0
! said 'generation 2' || fail "ranks were lost while the launcher was stopped"

# Three hosts: any agent may die or be stopped, the first one too.
three() { start --hosts localhost:2,b:2,c:2 --listen 127.0.0.1 --ssh "$dir/rsh" -n 2:6 "$@"; }
for host in '' b c; do
    three -- "${steps[@]}"
    all_in 1 6
    kill -9 "$(agent_of ${host:+"$host"})"
    all_in 2 4
    ends 0
    count ' done [0-9]' 4 || fail "not all were done after the death of the agent on host $host"
done
for host in '' c; do
    three --lease 2500ms -- "${steps[@]}"
    all_in 1 6
    agent=$(agent_of ${host:+"$host"})
    kill -STOP "$agent"
    all_in 2 4
    kill -CONT "$agent"
    must 'leaves the job: the other hosts have removed it and continue'
    ends 0
    count ' done [0-9]' 4 || fail "not all were done after a stop of the agent on host $host"
done
# SIGTERM to an agent, as of a scheduler that wants the host back: its ranks leave at a step border,
# and the agent with them. If the others are too few, the whole job is stopped.
three -- "${steps[@]}"
all_in 1 6
kill -TERM "$(agent_of b)"
must 'host b was asked to go (SIGTERM): its ranks leave at a step border'
all_in 2 4
must 'lost the agent on host b; 2 left'
ends 0
count ' done [0-9]' 4 || fail "not all were done after a host was asked to go"
! said 'killed by signal' || fail "a host that was asked to go lost ranks"
start -n 2 --elastic --grace 500ms -- "${steps[@]}"
all_in 1 2
kill -TERM "$(agent_of)"
ended 143
: >before
three --tls -- "${steps[@]}"
all_in 1 6
kill -9 "$(agent_of)"
all_in 2 4
ends 0
no_key() { [ -z "$(find /tmp -maxdepth 1 -name 'tandem-tls-*' -newer before)" ]; }
soon no_key || fail "the key of a killed agent is left"

# All that the processes of a host have written is read, however slow the reader, and although the
# job is over by then.
limited "$tandem" launch --hosts localhost:1,b:1 --listen 127.0.0.1 --ssh "$dir/rsh" -n 2:2 \
    --lease 10s -- sh -c '[ "$TANDEM_PROC" -lt 16777216 ] || seq 400000' 2>out | python3 -c '
import os, time
while text := os.read(0, 1 << 16):
    os.write(1, text)
    time.sleep(0.03)' >seen || fail "a slow reader: status $?"
[ "$(wc -l <seen)" = 400000 ] || fail "a slow reader got $(wc -l <seen) lines of 400000"

# Two agents die one after the other: the last one goes on.
three -- "${steps[@]}"
all_in 1 6
kill -9 "$(agent_of)"
all_in 2 4
kill -9 "$(agent_of b)"
all_in 3 2
ends 0

# Hosts come and go with the file that names them.
echo 'localhost:2' >hosts
start --hosts-file hosts --lease 5s --listen 127.0.0.1 \
    --ssh "$dir/rsh" -n 1:4 -- "${steps[@]}"
all_in 1 2
echo 'b:2' >>hosts
all_in 2 4
echo 'b:2' >hosts
all_in 3 2
ends 0

# A host that cannot be reached, or an entry that is wrong, costs nobody anything.
echo 'localhost:2' >hosts
start --hosts-file hosts --lease 5s --listen 127.0.0.1 \
    --ssh "$dir/rsh" -n 1:4 -- "${steps[@]}"
all_in 1 2
echo 'nowhere:2' >>hosts
must 'cannot start an agent on host nowhere; continuing without it: no route to nowhere'
echo 'localhost:many' >hosts
must 'the file of hosts: host "localhost:many": expected NAME or NAME:SLOTS'
ends 0
! said 'generation 2' || fail "a wrong entry cost a generation"

# How long it takes from kill -9 to the next generation is printed, not judged.
start -n 3 --elastic -- "${steps[@]}"
all_in 1 3
kill -9 "$(pid_of 1 1)"
all_in 2 2
ends 0
echo "test_elastic: from the last step with a rank to the first without it:" \
    "$(grep -o 'generation 2 rank 0 of 2 at .* ms' out | grep -o '[0-9]* ms')"
[ -s .sockets ] && [ -s .names ] || fail "nothing was ever held: what is left cannot be known"
echo "test_elastic: good"
