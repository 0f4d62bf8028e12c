# SPDX-License-Identifier: Apache-2.0
# What scripts that run `tandem` share; sourced at their beginning. Afterwards the script is in a
# folder of its own, $dir, which goes with it, as does every process that has $mark as an argument.
#
# Tests run side by side, on machines of any speed: nothing here or in a script looks once at what
# changes with time (`soon` waits for it), sleeps, or judges how long something took. Nor does what
# the script was given by whoever started it matter: standard input, language, the job it is part
# of.
# shellcheck shell=bash disable=SC2034 # variables are the script's to use
set -uo pipefail
exec </dev/null
export LC_ALL=C.UTF-8
for v in $(compgen -e); do
    case $v in
    TANDEM_ISA) ;; # which kernels are tested
    TANDEM_* | OMPI_COMM_* | PMI* | MPI_LOCAL* | SLURM_* | MASTER_* | TORCHELASTIC_* | RANK | \
        WORLD_SIZE | LOCAL_RANK | LOCAL_WORLD_SIZE) unset "$v" ;;
    esac
done
build=$(realpath "${TD_BUILD:-build}")
tandem=$build/tandem
source=$(realpath "${TD_SOURCE:-$PWD}")
terminal=$source/tests/e2e/terminal.py
patience=100 # seconds, for what takes a moment on a machine that has time for it
dir=$(mktemp -d "${TMPDIR:-/tmp}/tandem-e2e-XXXXXX") || exit 1
mark=$dir/job.yaml
export OMPI_MCA_orte_tmpdir_base=$dir # Open MPI's folder for all jobs vanishes with any of them
echo "$mark" >"$dir/.mark"
# processes: their numbers; also of one that is killed and has a thread left that waits for a disk
processes() {
    grep -lsaFf "$dir/.mark" /proc/[0-9]*/task/[0-9]*/cmdline | cut -d / -f 3 | sort -u
}
end_all() { for p in $(processes); do kill -KILL "$p" 2>/dev/null; done; }
also_clean() { :; } # a script's own
clean() {
    [ "$BASHPID" = $$ ] || return # a child that was not yet another program
    end_all
    also_clean
    rm -rf "$dir"
}
trap clean EXIT
cd "$dir" || exit 1

exec 3>&2 # where failures are told, also by commands whose standard error goes elsewhere
# With go_on set, a failure is told and the script goes on to its end, `exit $bad`.
go_on=
bad=0
fail() {
    echo "$(basename "$0" .sh): $*" >&3
    if [ -n "$go_on" ]; then bad=1; return; fi
    [ -f out ] && cat out >&3
    exit 1
}
# soon COMMAND...: until it succeeds; 1: it never did
soon() {
    local end=$((SECONDS + patience))
    until "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.02; done
}
dead() { [ -z "$(processes)" ]; }
# find_torch: $python is one with PyTorch: TD_TORCH_PYTHON, the environment that `make bench-torch`
# makes, or python3; 1: there is none
find_torch() {
    for python in "${TD_TORCH_PYTHON:-}" "$build/venv-torch/bin/python" python3; do
        [ -z "$python" ] || ! "$python" -c 'import torch.distributed' 2>/dev/null || return 0
    done
    return 1
}
sockets_of() { find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n'; }
# note: remember what the processes of this test and their children hold now: sockets by number, and
# jobs, which are part of the names of their shared memory. What the script has too (its standard
# error may be a socket) is not theirs.
note() {
    local p
    for p in $(processes) $(processes | xargs -rn 1 pgrep -P); do
        sockets_of "$p" | grep -vxFf <(sockets_of $$) >>"$dir/.sockets"
        sed -zn 's/^TANDEM_JOB=//p' "/proc/$p/environ" | tr '\0' '\n' >>"$dir/.names"
    done 2>/dev/null
    return 0
}
# held: what is left of that, a line each
held() {
    processes | xargs -rn 1 ps -L -o pid=,stat=,args= -p
    [ -f "$dir/.sockets" ] || return
    awk 'FILENAME ~ /sockets$/ { mine[$1]; next }
        FILENAME ~ /unix$/ && $7 in mine { print "socket", $7, $8 }
        FILENAME ~ /tcp/ && $10 in mine { print "port", $2 }' \
        "$dir/.sockets" /proc/net/unix /proc/net/tcp /proc/net/tcp6
    sort -u "$dir/.names" | while read -r job; do find /dev/shm -name "*$job*"; done
}
nothing_held() { [ -z "$(held)" ]; }
# none_left WHAT: no process of this test is left, nor anything noted that one held, or soon none
none_left() { soon nothing_held || fail "$1 left $(held)"; }
limited() { timeout $((2 * patience)) "$@"; }
# run EXPECTED_STATUS COMMAND...: output in ./out
run() {
    local want=$1 got; shift
    limited "$@" >out 2>&1; got=$?
    [ "$got" = "$want" ] || fail "$* gave $got instead of $want"
}
has() { grep -q -- "$1" out || fail "no '$1' in the output"; }
# said TEXT: the output of a program that runs has it
said() { grep -qs -- "$1" out; }
said_soon() { soon said "$1" || fail "no '$1' in the output"; }
digest() { grep -o 'sha256:[0-9a-f]*' "${1:-out}" | tail -n 1; }
# every_step NAME STEPS: metrics.jsonl of ./run has the line of each step once, in order
every_step() {
    local steps
    steps=$(grep -o '"kind": "step", "step": [0-9]*' run/metrics.jsonl | grep -o '[0-9]*$')
    [ "$steps" = "$(seq "$2")" ] || fail "$1: metrics.jsonl has steps $steps"
}
# like_quiet NAME FILES...: the last checkpoint of ./run is of step 24, and as that of ./quiet
like_quiet() {
    local name=$1 file; shift
    [ "$(cat run/checkpoints/latest)" = step-00000024 ] || fail "$name: another last checkpoint"
    for file; do
        cmp -s {quiet,run}/checkpoints/step-00000024/"$file" || fail "$name: another $file"
    done
}
# same WHAT: the last digest is $want, that of one rank
same() { [ "$(digest)" = "$want" ] || fail "$1: another digest than that of one rank"; }

# A run in the background, $pid, that is worked on while it runs. Where it was over too soon, it is
# done again, slower: `slowly` gives the faults for that.
slow_ms=20
slowly() { printf "slow rank=%d for=${slow_ms}ms at=step:1;" "${@:-0}"; } # RANKS...: 0
patiently() { # FUNCTION: one that fails if the run was over too soon
    for slow_ms in 20 100 500; do
        "$1" && return
        wait "$pid"
    done
    fail "$1: the run never was as it should be"
}
# while_it_runs COMMAND...: waits until it succeeds; 1: the run ended without
while_it_runs() {
    until "$@"; do kill -0 "$pid" 2>/dev/null || { "$@"; return; }; sleep 0.02; done
    note & # what follows is in a hurry
}
# step K [DIR]: that step of the run is done
step() { grep -qs "\"kind\": \"step\", \"step\": $1," "${2:-run}/metrics.jsonl"; }
