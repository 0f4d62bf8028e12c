#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The jobs of the digest matrix (tests/dist/jobs) inside mpirun, on 1 to 9 ranks: MPI carries the
# messages, and the digest is that of one rank. Open MPI and MPICH take turns where both are here.
. "$(dirname "$0")/lib.sh"
jobs=$source/tests/dist/jobs
export TANDEM_MODULES=$build
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
# train COMMAND...: one of the jobs, to its end; output in ./out
train() { run 0 "$@" "$tandem" train "$jobs/$job.yaml" --set train.clip=0.2; }

mpis=()
for mpi in openmpi mpich; do
    command -v "mpirun.$mpi" >/dev/null && [ -e "$build/libtandem_$mpi.so" ] && mpis+=("$mpi")
done
[ ${#mpis[@]} -gt 0 ] || { echo "test_train_mpi: no MPI here: skipped"; exit 77; }
turn=0
for job in mlp cnn gpt; do
    train env
    want=$(digest)
    [ -n "$want" ] || fail "$job: no digest"
    for n in 1 2 3 4 5 6 7 8 9; do
        mpi=${mpis[turn++ % ${#mpis[@]}]}
        train "mpirun.$mpi" -n $n
        [ $n = 1 ] || grep -q "on $n ranks (mpi)" out || fail "$job, $n ranks: $mpi was not used"
        same "$job, $n ranks, $mpi"
    done
done
