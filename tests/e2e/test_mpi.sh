#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Inside mpirun, of Open MPI and of MPICH, a Tandem program finds its rank and uses that MPI: every
# collective, the same bits as without it, and MPI's own collectives when asked for.
. "$(dirname "$0")/lib.sh"
world=$build/tests/prog_world
export TANDEM_MODULES=$build
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
turning() { [ "$(grep -cs turning out)" = 3 ]; }
# run MPI RANKS ARGUMENTS...: prog_world; output in $dir/out
run() {
    local mpi=$1 n=$2; shift 2
    limited "mpirun.$mpi" -n "$n" "$world" "$@" >out 2>&1 || fail "$mpi, $n ranks: $*"
}
want=$("$tandem" launch -n 4 -- "$world" digest direct | sed 's/.*digest //' | sort -u)

tested=0
for mpi in openmpi mpich; do
    if ! command -v "mpirun.$mpi" >/dev/null || [ ! -e "$build/libtandem_$mpi.so" ]; then
        echo "test_mpi: $mpi is not installed: skipped"
        continue
    fi
    tested=$((tested + 1))
    for n in 1 2 3 4; do
        run $mpi $n all direct
        [ $n = 1 ] || [ "$(grep -c 'good over mpi' out)" = $n ] || fail "$mpi was not used"
    done
    run $mpi 4 all mpi
    run $mpi 4 digest direct
    [ "$(sed 's/.*digest //' out | sort -u)" = "$want" ] || fail "$mpi: other bits: $want"
    # Without the module, or when told so, the ranks meet by themselves.
    TANDEM_ENGINE=native run $mpi 3 all
    [ "$(grep -c 'good over shm' out)" = 3 ] || fail "$mpi: native engine"
    TANDEM_MODULES=$dir run $mpi 2 join
    [ "$(grep -c 'of 2 over shm' out)" = 2 ] || fail "$mpi: no module"
    # A dead rank ends the job.
    rm -f out # what it held must not be taken for new
    limited "mpirun.$mpi" -n 3 "$world" loop 1000 "$mark" >out 2>&1 &
    job=$!
    soon turning || fail "$mpi: ranks do not turn"
    kill -9 "$(sed -n 's/turning, pid //p' out | tail -n 1)" || fail "$mpi: no ranks"
    wait $job
    got=$?
    [ $got != 124 ] && [ $got != 0 ] || fail "$mpi: a dead rank gave $got"
    none_left "$mpi: a dead rank"
done
[ $tested -gt 0 ] || { echo "test_mpi: no MPI here: skipped"; exit 77; }
echo "test_mpi: good"
