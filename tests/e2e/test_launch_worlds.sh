#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Programs of other systems under `tandem launch -n MIN:MAX`: each generation is a world of fixed
# ranks, as under torchrun. A rank that dies, a host that is lost, joins or leaves, and `tandem
# scale` end it, and all ranks begin anew in the next one.
. "$(dirname "$0")/lib.sh"
go_on=

cat >rsh <<'SH'
#!/bin/sh
shift
exec "$@"
SH
chmod +x rsh
# Every rank says where it is: its world is W by the number of ranks and of failures. Rank 0 of a
# world named `end-W` ends it well, and so do the others.
cat >rank.py <<'PY'
import os, signal, socket, sys, time
mark, e = sys.argv[1], os.environ
me = " ".join(e[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
                             "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"))
world = f"{e['WORLD_SIZE']}-{e['TORCHELASTIC_RESTART_COUNT']}"
assert e["TORCHELASTIC_MAX_RESTARTS"] == "2" or "MORE" in e, e["TORCHELASTIC_MAX_RESTARTS"]
# The ranks of a world meet where they were told to, as a process group does.
if e["RANK"] == "0":
    s = socket.create_server((e["MASTER_ADDR"], int(e["MASTER_PORT"])))
    s.settimeout(60)
    ranks = ["0"] + [s.accept()[0].recv(16).decode() for _ in range(int(e["WORLD_SIZE"]) - 1)]
    assert sorted(map(int, ranks)) == list(range(int(e["WORLD_SIZE"]))), ranks
else:
    for _ in range(600):
        try:
            c = socket.create_connection((e["MASTER_ADDR"], int(e["MASTER_PORT"])))
            break
        except OSError:
            time.sleep(0.05)
    c.send(e["RANK"].encode())
with open(f"at-{world}-{e['RANK']}.new", "w") as f:
    f.write(f"{me}\n{os.getpid()}\n")
os.rename(f"at-{world}-{e['RANK']}.new", f"at-{world}-{e['RANK']}")
until = time.time() + 100
while not os.path.exists(f"end-{world}"):
    assert time.time() < until, "nobody ended this world"
    time.sleep(0.02)
PY
start() { # ARGUMENTS...: in the background, $pid
    rm -f at-* end-*
    "$tandem" launch "$@" >out 2>&1 &
    pid=$!
}
there() { # WORLD RANKS: they have met
    local r
    kill -0 "$pid" 2>/dev/null || fail "no world $1"
    for ((r = 0; r < $2; r++)); do [ -e "at-$1-$r" ] || return 1; done
}
meet() { soon there "$1" "$2" || fail "no world $1"; }
ends() { # STATUS
    wait "$pid"
    local got=$?
    [ $got = "$1" ] || fail "ended with $got, not $1"
    none_left "a launch"
}
is() { # WORLD RANK TEXT: what that rank found
    [ "$(head -n 1 "at-$1-$2")" = "$3" ] || fail "rank $2 of $1: $(head -n 1 "at-$1-$2"), not $3"
}
# RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_WORLD_SIZE

# A rank is killed: all are started again with the next count, and it is told why.
start -n 2:3 --restarts 2 -- python3 rank.py "$mark"
meet 3-0 3
has 'python3 does not join as tandem train does: '
is 3-0 2 '2 3 2 3 0 1 3'
kill -9 "$(tail -n 1 at-3-0-1)"
meet 3-1 3
has 'killed by signal 9.*: rank 1 of 3 .*; all ranks are started again (restart 1 of 2)'
for r in 0 1 2; do
    kill -0 "$(tail -n 1 at-3-0-$r)" 2>/dev/null && fail "rank $r of the first world is still there"
done
touch end-3-1
ends 0

# A rank that fails whenever it is started: the last failure is the launcher's.
run 7 "$tandem" launch -n 1:2 --framework none --restarts 2 -- \
    sh -c '[ $RANK = 0 ] || exec sleep 1000; exit $((5 + TORCHELASTIC_RESTART_COUNT))' "$mark"
has 'exit status 6: rank 0 of 2 .*(restart 2 of 2)'
none_left "failures"

# A program of Tandem's with a world of its own is not two programs alone.
run 1 "$tandem" launch -n 1:2 --restarts 1 -- "$build/examples/09_product"
has 'EINVAL: .*wants a fixed world (td_comm_world): give tandem launch --framework none'
! grep -q 'of 1:' out || fail "a world of one: $(cat out)"
run 0 "$tandem" launch -n 2:2 --framework none -- "$build/examples/09_product"
has 'rank 1 of 2'

# Hosts: one joins (the file says so), one has fewer slots, one leaves, one is lost.
three=(--hosts-file hosts --listen 127.0.0.1 --ssh "$dir/rsh" --restarts 2)
echo localhost:1 >hosts
start -n 1:4 "${three[@]}" -- python3 rank.py "$mark"
meet 1-0 1
printf 'localhost:1\nb:2\n' >hosts.new; mv hosts.new hosts
meet 3-0 3
has 'the file of hosts has changed: 3 ranks on 2 hosts; all ranks are started again in a new world'
is 3-0 0 '0 3 0 1 0 2 3'
is 3-0 2 '2 3 1 2 1 2 3'
printf 'localhost:1\nb:2\nc:5\n' >hosts.new; mv hosts.new hosts # MAX is 4
meet 4-0 4
is 4-0 3 '3 4 0 1 2 3 4'
printf 'localhost:1\nb:1\n' >hosts.new; mv hosts.new hosts
meet 2-0 2
is 2-0 1 '1 2 0 1 1 2 2'
touch end-2-0
ends 0

start -n 2:3 --hosts localhost:2,b:1 "${three[@]:2}" -- python3 rank.py "$mark"
meet 3-0 3
agent=$(pgrep -f "^$tandem agent" -P $pid) || fail "no agent of host b"
kill -9 "$agent"
meet 2-0 2
has 'lost the agent on host b with 1 of its ranks running.*; all ranks are started again in a new'
is 2-0 1 '1 2 1 2 0 1 2'
touch end-2-0
ends 0
# Too few are left.
start -n 3:3 --hosts localhost:2,b:1 "${three[@]:2}" -- python3 rank.py "$mark"
meet 3-0 3
kill -9 "$(pgrep -f "^$tandem agent" -P $pid)"
ends 1
has 'lost the agent on host b'
# A host that cannot be reached is done without.
printf '#!/bin/sh\n[ "$1" != c ] || exit 255\nshift\nexec "$@"\n' >rsh
start -n 1:3 --hosts localhost:1,c:1,b:1 "${three[@]:2}" -- python3 rank.py "$mark"
meet 2-0 2
has 'cannot start an agent on host c'
touch end-2-0
ends 0

# `tandem scale` and `tandem status`; Ctrl-C while a world ends: nothing begins anew.
MORE=1 start -n 1:3 --control control -- python3 rank.py "$mark"
meet 3-0 3
"$tandem" scale control 2 >said 2>&1 || fail "scale: $(cat said)"
grep -q '2 ranks are wanted' said || fail "scale: $(cat said)"
meet 2-0 2
has 'another number of ranks is wanted: 2 ranks on 1 host'
"$tandem" status control >said 2>&1 || fail "status: $(cat said)"
"$tandem" scale control 2 >said 2>&1 || fail "scale: $(cat said)"
grep -q '2 ranks are wanted: this world has as many and goes on' said || fail "scale: $(cat said)"
"$tandem" scale control 4 >said 2>&1 && fail "more than MAX"
grep -q 'this job can have 1 to 3 ranks' said || fail "scale: $(cat said)"
kill -INT $pid
ends 130

# Roles; MPI's and Horovod's servers have their tests. Wrong usage is one line.
start -n 2:3 --framework none --roles chief:1,ps:1 --restarts 2 -- \
    sh -c 'case $RANK in 1) exec sleep 1000;; esac; echo "$ROLE_NAME $RANK of $WORLD_SIZE"' "$mark"
ends 0
has 'chief 0 of 3'; has 'worker 2 of 3'
one_line() { # TEXT ARGUMENTS...
    run 2 "$tandem" launch "${@:2}"
    has "$1"
    [ "$(wc -l <out)" = 1 ] || fail "$1: more than a line"
}
one_line 'spares: programs that do not join' -n 2:3 --framework none --spares 1 -- true
one_line '3 ranks, but the hosts have 2 slots' -n 3:4 --hosts localhost:2 --framework none -- true
one_line 'roles: .*2 ranks and more' -n 1:3 --framework none --roles chief:2 -- true

# PyTorch itself: its process group in two worlds.
find_torch || { echo "test_launch_worlds: PyTorch is not here: that part is left out"; exit 0; }
cat >ddp.py <<'PY'
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
again = os.environ["TORCHELASTIC_RESTART_COUNT"]
print("world", again, dist.get_world_size(), "sum", int(x), flush=True)
dist.barrier()
if again == "0" and dist.get_rank() == 1:
    os._exit(3)
dist.barrier() if again == "0" else dist.destroy_process_group()
PY
run 0 "$tandem" launch -n 2:3 --restarts 1 -- "$python" ddp.py "$mark"
has 'world 0 3 sum 6'
has 'world 1 3 sum 6'
