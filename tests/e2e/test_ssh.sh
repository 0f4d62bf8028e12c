#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# tandem launch --hosts through a real ssh: an sshd of this test's own on a picked loopback port,
# with its own host key and user key. Three agents, failures in one line, no orphans.
# Skipped where there is no sshd: its package would also start one for everybody.
. "$(dirname "$0")/lib.sh"
world=$build/tests/prog_world
sshd=$(command -v sshd || ls /usr/sbin/sshd 2>/dev/null)
if [ -z "$sshd" ] || ! command -v ssh >/dev/null; then
    echo "test_ssh: needs ssh and sshd: skipped"
    exit 77
fi
daemon=
also_clean() { [ -z "$daemon" ] || kill "$daemon" 2>/dev/null; }
fail() { echo "test_ssh: $*" >&2; cat "$dir/out" "$dir/log" >&2; exit 1; }

chmod 700 "$dir"
for key in host user stranger; do ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
cp "$dir/user.pub" "$dir/authorized"
[ "$(id -u)" = 0 ] && mkdir -p /run/sshd
picked() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'; }
start() { # a port may be taken between picking and listening: 1
    port=$(picked)
    cat >"$dir/sshd_config" <<END
ListenAddress 127.0.0.1:$port
HostKey $dir/host
AuthorizedKeysFile $dir/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
END
    "$sshd" -D -e -f "$dir/sshd_config" >"$dir/log" 2>&1 &
    daemon=$!
    listening() { grep -qs "Server listening" log || ! kill -0 "$daemon" 2>/dev/null; }
    soon listening
    grep -qs "Server listening" log
}
: >"$dir/out"
soon start || fail "sshd does not start"
cat >"$dir/config" <<END
Host near*
    HostName 127.0.0.1
    Port $port
    IdentityFile $dir/user
    IdentitiesOnly yes
    UserKnownHostsFile $dir/known
    StrictHostKeyChecking no
    BatchMode yes
    LogLevel ERROR
END
launch() { limited "$tandem" launch --listen 127.0.0.1 --ssh "ssh -T -F $dir/config" "$@"; }

# Three agents, one here and two through ssh; arguments arrive as they are.
launch --hosts localhost:1,near1:2,near2:1 -- "$world" all >"$dir/out" 2>&1 || fail "no launch"
[ "$(grep -c 'good over' "$dir/out")" = 4 ] || fail "not all ranks are good"
# A host whose ranks are done keeps its part of the store for the others.
launch --hosts localhost:1,near1:1,near2:2 -- "$world" early >"$dir/out" 2>&1 ||
    fail "early leavers"
launch --hosts near1:1,near2:1 -- sh -c 'echo "$RANK $0 $1"' 'a  b' "c'\$d" >"$dir/out" 2>&1 ||
    fail "arguments"
sort "$dir/out" | diff - <(printf "[%d] %d a  b c'\$d\n" 0 0 1 1) >/dev/null || fail "arguments"
# A program whose path has a space.
mkdir "$dir/a b" && ln -s "$tandem" "$dir/a b/tandem"
limited "$dir/a b/tandem" launch --listen 127.0.0.1 --ssh "ssh -T -F $dir/config" \
    --agent "$dir/a b/tandem" --hosts near1:1 -- true >"$dir/out" 2>&1 || fail "a path with a space"

# A rank that fails there: its status and its name.
launch --hosts localhost:1,near1:2 -- sh -c \
    "if [ \$RANK = 2 ]; then echo why; exit 9; fi; while :; do sleep 1000; done" $mark \
    >"$dir/out" 2>&1
[ $? = 9 ] || fail "status of a remote failure"
tail -n 1 "$dir/out" | grep -q 'exit status 9: rank 2 of 3 on host near1' || fail "no name"
none_left "a failure"

# kill -9 of the launcher.
"$tandem" launch --listen 127.0.0.1 --ssh "ssh -T -F $dir/config" --hosts \
    localhost:1,near1:1,near2:1 -- sh -c "echo up; while :; do sleep 1000; done" $mark \
    >"$dir/out" 2>&1 &
job=$!
soon eval '[ "$(grep -c " up" "$dir/out")" = 3 ]' || fail "ranks did not start"
kill -9 $job
wait $job 2>/dev/null
none_left "kill -9"

# What cannot work says so in one line.
one_line() { # PATTERN
    [ "$(wc -l <"$dir/out")" = 1 ] && grep -q "$1" "$dir/out" || fail "expected one line with $1"
}
refused() { # HOSTS SSH PATTERN
    limited "$tandem" launch --listen 127.0.0.1 --hosts "$1" --ssh "$2" -- true >"$dir/out" 2>&1
    [ $? = 1 ] || fail "$1 was not refused"
    one_line "$3"
}
sed "s|$dir/user|$dir/stranger|" "$dir/config" >"$dir/config2"
refused localhost:1,near1:1 "ssh -T -F $dir/config2" 'host near1.*Permission denied'
# A port that nobody listens on, and that nobody else gets.
python3 -c 'import signal, socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True); signal.pause()' "$mark" >closed &
disown # its end is nobody's news
soon test -s closed || fail "no port"
refused localhost:1,near1:1 "ssh -T -F $dir/config -p $(cat closed)" 'host near1.*refused'
refused localhost:1,near1:1 "$dir/no-such-ssh" 'no-such-ssh'
launch --hosts near1:1 --agent "$dir/nothing" -- true >"$dir/out" 2>&1
[ $? = 1 ] || fail "an agent that is not there"
one_line 'host near1.*nothing'
echo "test_ssh: good"
