#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The ssh tracker: two hosts that are this one, each with a folder of its own, reached by a command
# that runs a script there as ssh does; and by a real sshd, where there is one.
. "$(dirname "$0")/track.sh"
kind=ssh
host=127.0.0.1
cat >reach <<'EOF'
#!/bin/sh
host=$1; shift
[ ! -e "$(dirname "$0")/cut" ] || { echo "ssh: connect to host $host: no route" >&2; exit 255; }
exec "$@"
EOF
chmod +x reach
config() { echo "ssh: {hosts: [$1], command: $2, dir: $dir/there}" >service.yaml; }
left() { find there -mindepth 1 -maxdepth 1 | wc -l; }
mkdir there
config '127.0.0.1:4' "$dir/reach"
all_of_it

# No room; a host that does not answer is trouble while it lasts, and not the end.
spec 'name: wide' 'resources: {members: 5}' <<<'exit 0'
drive job-2-1-aa start wait:FAILED
has 'FAILED.*no room for 5 members'
spec 'name: cut' 'grace_s: 1' <<<'sleep 600'
drive job-2-2-bb start wait:STARTED
touch cut
drive job-2-2-bb adopt wait:TROUBLE
has 'TROUBLE.*no route'
rm cut
drive job-2-2-bb adopt wait:STARTED kill wait:EXITED forget
# A member whose host was restarted is lost.
drive job-2-3-cc start wait:STARTED
kill -KILL -- "-$(cat there/job-2-3-cc/pid-0)"
drive job-2-3-cc adopt wait:EXITED forget
has 'EXITED.*class lost'

# Without PAM sshd lets nobody in whose password is locked, with a key neither.
if [ "$(id -u)" = 0 ] && [ -x /usr/sbin/sshd ] &&
    [[ $(getent shadow root | cut -d: -f2) != '!'* ]]; then
    port=$((20000 + $$ % 9000 * 4))
    ssh-keygen -q -t ed25519 -N '' -f host_key && ssh-keygen -q -t ed25519 -N '' -f key
    cp key.pub authorized
    chmod 700 . && mkdir -p /run/sshd
    background /usr/sbin/sshd -D -e -p $port -o ListenAddress=127.0.0.1 -h "$dir/host_key" \
        -o AuthorizedKeysFile="$dir/authorized" -o StrictModes=no -o PidFile=none -f /dev/null
    via="ssh -p $port -i $dir/key -o BatchMode=yes -o StrictHostKeyChecking=no"
    via="$via -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    ready $via 127.0.0.1 true
    config '127.0.0.1:4' "$via"
    two_members_run_and_end
    groups_are_adopted
else
    echo "$name: no sshd here that lets root in: tested without it"
fi
