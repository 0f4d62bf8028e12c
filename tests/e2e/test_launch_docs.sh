#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Every command that docs/launch.md shows, as it stands there but for the names: hosts a and b are
# this one under two addresses, reached by an `ssh` that is a script. And a program of MPI is told
# of.
. "$(dirname "$0")/lib.sh"
page=$source/docs/launch.md
mkdir bin
ln -s "$tandem" bin/tandem
cat >bin/ssh <<'END'
#!/bin/sh
while :; do
    case $1 in
    -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
shift # the host
exec "$@"
END
cat >bin/program <<'END'
#!/bin/sh
echo "rank $RANK of $WORLD_SIZE: $OMPI_COMM_WORLD_RANK $HOROVOD_SIZE $*"
END
chmod +x bin/ssh bin/program
export PATH=$dir/bin:$PATH
cat >"$mark" <<JOB # ./job.yaml
name: job
model: [flatten, {linear: 16, act: relu}, linear]
data: {source: digits, count: 200}
train: {batch: 32, micro_batches: 8, steps: 100000, eval: {every: never}}
log: {tensorboard: false, report: false}
JOB
echo "localhost:4" >hosts

# live N: the run in the background has that many ranks
live() { "$tandem" status runs/job-0001 2>/dev/null | grep -q "now $1 ranks"; }
stop() { # a job of many steps, once it does some
    soon step 3 runs/job-0001 || fail "$command: no step: $(cat job.out)"
    [ $# = 0 ] || soon live "$1" || fail "$command: not $1 ranks: $(cat job.out)"
    kill -INT "$pid"
    wait "$pid"
    [ $? = 130 ] || fail "$command: $(cat job.out)"
    rm -rf runs
}
n=0
while read -r command; do
    n=$((n + 1))
    case $command in
    'tandem launch -n 4 -- program arguments...')
        run 0 bash -c "$command"
        for r in 0 1 2 3; do has "rank $r of 4: $r 4 arguments..."; done ;;
    'tandem launch --hosts a:4,b:4 --log-dir logs -- program arguments...')
        run 0 bash -c "${command/a:4,b:4/localhost:4,127.0.0.2:4}"
        for r in 0 3 4 7; do
            grep -q "rank $r of 8: $r 8" "logs/rank-$r.log" || fail "log of rank $r"
        done ;;
    'tandem launch -n 2:8 --hosts-file hosts --restarts 3 -- python3 ddp.py')
        echo 'import os; print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])' >ddp.py
        run 0 bash -c "$command"
        has 'rank 3 of 4' ;;
    'tandem train job.yaml -n 4 --restarts 3 --hang 60s')
        ${command/job.yaml/$mark} --run-dir "$dir/runs/job-0001" >job.out 2>&1 &
        pid=$!
        stop ;;
    'tandem launch -n 2:8 --hosts-file hosts -- tandem train job.yaml')
        ${command/job.yaml/$mark} --run-dir "$dir/runs/job-0001" >job.out 2>&1 &
        pid=$!
        stop 4 ;;
    'tandem train job.yaml -n 4 --elastic --spares 1')
        ${command/job.yaml/$mark} >job.out 2>&1 &
        pid=$!
        soon live 4 || fail "$command: $(cat job.out)" ;;
    'tandem scale runs/job-0001 6') # of the job before
        # shellcheck disable=SC2086
        run 0 $command
        stop 6 ;;
    *) fail "a command that this test does not know: $command" ;;
    esac
done < <(sed -n 's/^    \(tandem .*\)/\1/p' "$page")
[ $n = 7 ] || fail "$n commands"

run 0 "$tandem" launch -n 2 -- true
! grep -q MPI out || fail "true is said to use MPI"
echo "test_launch_docs: ok"
