#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Real MPI programs, of MPICH and of Open MPI, have their world under `tandem launch`: on one host,
# on three, after MPI_Abort, when a rank dies before MPI_Init, and when all are started again. Where
# they get none, one line says that they run as singletons.
. "$(dirname "$0")/lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
# Other hosts are folders of this one.
printf '#!/bin/sh\nshift\nexec "$@"\n' >shell
chmod +x shell
# world RANKS HOSTS...: the ranks of that many on each host, as the output has them
world() {
    local n=$1 sum=0 rank=0 count local; shift
    for ((rank = 0; rank < n; rank++)); do sum=$((sum + rank)); done
    rank=0
    for count; do
        for ((local = 0; local < count; local++, rank++)); do
            echo "[$rank] rank $rank of $n: sum $sum, ring $(((rank + n - 1) % n))," \
                "host $local of $count"
        done
    done
}
is_world() { [ "$(grep ring out | sort)" = "$(world "$@")" ] || fail "another world than $*"; }
clean_up() { [ -z "$(ls -d "$dir"/tandem-pmix-* 2>/dev/null)" ] || fail "$1: a folder is left"; }
export TMPDIR=$dir
# Ranks that wait leave the processor to the others.
export OMPI_MCA_mpi_yield_when_idle=1 MPIR_CVAR_POLLS_BEFORE_YIELD=1

tested=0
for mpi in mpich openmpi; do
    if ! command -v "mpicc.$mpi" >/dev/null ||
        { [ $mpi = openmpi ] && [ ! -e "$build/libtandem_pmix.so" ]; }; then
        echo "test_launch_mpi: $mpi is not installed: skipped"
        continue
    fi
    tested=$((tested + 1))
    run 0 "mpicc.$mpi" "$source/tests/e2e/mpi_world.c" -o "$mpi"
    for n in 1 2 4; do
        run 0 "$tandem" launch -n $n -- "./$mpi"
        is_world $n $n
    done
    ! grep -q singleton out || fail "$mpi: said to be singletons"
    run 0 "$tandem" launch --hosts localhost:2,b:1,c:1 --ssh ./shell --listen 127.0.0.1 -- "./$mpi"
    is_world 4 2 1 1
    # A script is linked with nothing: it says whose it is.
    run 0 "$tandem" launch -n 2 --framework $mpi -- sh -c "exec ./$mpi"
    is_world 2 2
    run 7 "$tandem" launch -n 3 -- "./$mpi" abort 1
    has 'failed with exit status 7: rank 1 of 3'
    run 9 "$tandem" launch -n 3 -- "./$mpi" die 2
    has 'failed with exit status 9: rank 2 of 3'
    run 0 "$tandem" launch -n 2 --restarts 1 -- sh -c \
        "[ \$TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; exec ./$mpi" # not served: singletons
    run 0 "$tandem" launch -n 2 --restarts 1 --framework $mpi -- sh -c \
        "[ \$TORCHELASTIC_RESTART_COUNT\$RANK != 01 ] || exit 3; exec ./$mpi"
    is_world 2 2
    # As many as there are slots for, and again after one failed.
    run 0 "$tandem" launch -n 2:3 --hosts localhost:2,b:2 --ssh ./shell --listen 127.0.0.1 \
        -- "./$mpi"
    is_world 3 2 1
    run 0 "$tandem" launch -n 2:3 --restarts 1 --framework $mpi -- sh -c \
        "[ \$TORCHELASTIC_RESTART_COUNT\$RANK != 01 ] || exit 3; exec ./$mpi"
    is_world 3 3
    clean_up $mpi
    # No server: ranks that are alone, which is said once.
    run 0 "$tandem" launch -n 2 --framework none -- "./$mpi"
    [ "$(grep -c "$mpi is an MPI program (libmpi.*), and gets no world here, as"\
" --framework is none: each rank runs as a singleton" out)" = 1 ] || fail "$mpi: not told once"
    [ "$(grep -c 'rank 0 of 1' out)" = 2 ] || fail "$mpi: no singletons"
done
if [ -e openmpi ]; then # where there is no libpmix
    cp "$tandem" alone
    run 0 ./alone launch -n 2 -- ./openmpi
    [ "$(grep -c 'no module libtandem_pmix.so.*singleton' out)" = 1 ] || fail "no module: not told"
    long=$(printf '%0240d' 0)
    TMPDIR=/$long run 1 "$tandem" launch -n 2 -- ./openmpi
    has 'TMPDIR=/0*... is too long for PMIx'
    run 2 ./alone launch -n 2 --framework openmpi -- ./openmpi
    has 'no module libtandem_pmix.so'
fi
run 2 "$tandem" launch -n 2 --framework lam -- true
has "expected mpich, openmpi.* or none, found 'lam'"
[ $tested -gt 0 ] || { echo "test_launch_mpi: no MPI here: skipped"; exit 77; }
echo "test_launch_mpi: good"
