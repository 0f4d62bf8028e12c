#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Programs of Horovod and MPI in groups of a service: what ranks of Horovod say to their launcher is
# replayed by horovod_rank.py, programs of MPICH and Open MPI are real. On this host, and on hosts
# that are reached by a command, as by ssh.
. "$(dirname "$0")/real.sh"
. "$source/tests/e2e/serve.sh"
need_command python3
need_command curl
release() { service_gone; }
printf '#!/bin/sh\nshift\nexec "$@"\n' >reach
chmod +x reach
config=$dir/service.yaml
echo "tracker: {default: process}
capacity: {slots: 8}
security: {allow_code: true}
ssh: {hosts: ['127.0.0.1:4'], command: $dir/reach, dir: $dir/there, program: $tandem}" \
    >service.yaml
serve first
rank=$source/tests/e2e/horovod_rank.py
# group TRACKER FRAMEWORK MEMBERS PROCESSES COMMAND...
group() {
    printf '%s\n' "name: $2" "tracker: $1" "framework: $2" 'grace_s: 2' \
        "resources: {members: $3, processes: $4, slots: 1}" \
        "command: [$(printf '"%s", ' "${@:5}")\"$mark\"]" >spec.yaml # $mark
    submit --spec spec.yaml
}
# said MEMBERS: the output of all members, sorted
said() {
    for ((m = 0; m < $1; m++)); do ask "$server/v1/jobs/$job/logs?member=$m"; done | sort >out
}
is() { [ "$(grep '^rank' out)" = "$(printf '%s\n' "$@")" ] || fail "other ranks than $*"; }

group process horovod 3 1 python3 "$rank"
await "$job" succeeded
said 3
is "rank 0 of 3: local 0 of 3, cross 0 of 1" "rank 1 of 3: local 1 of 3, cross 0 of 1" \
    "rank 2 of 3: local 2 of 3, cross 0 of 1"
group ssh horovod 2 2 python3 "$rank"
await "$job" succeeded
said 2
is "rank 0 of 4: local 0 of 2, cross 0 of 2" "rank 1 of 4: local 1 of 2, cross 0 of 2" \
    "rank 2 of 4: local 0 of 2, cross 1 of 2" "rank 3 of 4: local 1 of 2, cross 1 of 2"
# One that fails ends the others, which wait for it.
group process horovod 2 1 sh -c "[ \$RANK = 0 ] || exit 7; exec python3 $rank"
await "$job" failed
ask "$server/v1/jobs/$job" | grep -q '"exit_status":7' || fail "another status"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
tested=0
for mpi in mpich openmpi; do
    if ! command -v "mpicc.$mpi" >/dev/null ||
        { [ $mpi = openmpi ] && [ ! -e "$build/libtandem_pmix.so" ]; }; then
        echo "test_serve_foreign: $mpi is not installed: skipped"
        continue
    fi
    tested=$((tested + 1))
    "mpicc.$mpi" "$source/tests/e2e/mpi_world.c" -o $mpi >out 2>&1 || fail "mpicc.$mpi"
    group ssh mpi 3 1 "$dir/$mpi"
    await "$job" succeeded
    said 3
    grep -o 'rank . of 3: sum 3, ring .' out >ranks
    [ "$(cat ranks)" = "rank 0 of 3: sum 3, ring 2
rank 1 of 3: sum 3, ring 0
rank 2 of 3: sum 3, ring 1" ] || fail "$mpi: another world"
    group ssh mpi 2 1 "$dir/$mpi" abort 1
    await "$job" failed
    ask "$server/v1/jobs/$job" | grep -q '"exit_status":7' || fail "$mpi: MPI_Abort"
done
# A script is linked with no MPI, and says whose its programs are.
group ssh mpi 2 1 sh -c true
await "$job" succeeded
said 2
grep -q 'sh is linked with no MPI' out || fail "not why"
if [ -x mpich ]; then
    group ssh mpi 2 1 sh -c "exec $tandem attend --no-results --framework mpich -- $dir/mpich"
    await "$job" succeeded
    said 2
    [ "$(grep -c '^rank . of 2: sum 1' out)" = 2 ] || fail "a script's world"
fi
end_service
[ -z "$(find "$dir" /tmp -maxdepth 1 -name 'tandem-pmix-*' -newer reach 2>/dev/null)" ] ||
    fail "a folder is left"
echo "test_serve_foreign: Horovod and $tested MPIs"
