# SPDX-License-Identifier: Apache-2.0
# What every tracker over a real system must do; sourced by test_track_*.sh, which set `kind`, start
# the system, write service.yaml and define `left`: how many of a group's things are there.
# `also`: further keys of every spec ("image: small"); `tandem_also`, `torch_also`: instead of it
# for ranks of tandem and workers of PyTorch. `program`: tandem where members run.
# shellcheck shell=bash disable=SC2034,SC2154 # variables are the script's
. "$(dirname "$0")/real.sh"
tracker=$build/tests/prog_tracker
program=$tandem
also=
mkdir job

# spec KEY...: the spec of the next group, which runs standard input
spec() {
    printf '%s\n' "$also" "$@" >spec.yaml
    printf 'command: [sh, -c, "%s"]\n' "$(cat)" >>spec.yaml
}
# drive TOKEN STEP...: output in `out`
drive() {
    timeout 150 "$tracker" $kind service.yaml spec.yaml "$dir/job" "$@" >out 2>&1 || {
        local status=$?
        [ -s background.log ] && { echo "background:"; tail -5 background.log; } >>out
        fail "$kind: $* ended otherwise ($status)"
    }
}
# has TEXT...: each is in `out`
has() { for text in "$@"; do grep -q -- "$text" out || fail "'$text' is missing"; done; }
is_empty() { [ "$(left)" = 0 ]; }
none_left() { soon is_empty || fail "$(left) left behind: $1"; }

two_members_run_and_end() {
    spec 'name: two' 'resources: {members: 2, memory_mb: 64}' \
        <<<'echo rank $RANK of $WORLD_SIZE, $OWN, master ${MASTER_ADDR:-none}:$MASTER_PORT'
    drive job-1-1-aa -e OWN=mine start wait:STARTED wait:EXITED logs:0 logs:1
    has 'EXITED member 0 status 0' 'rank 0 of 2, mine' 'rank 1 of 2, mine' 'master [^n].*:[0-9]'
    local there
    there=$(left)
    [ "$there" -gt 0 ] || fail "nothing is there of a group that has ended"
    drive job-1-1-aa start wait:EXITED # the same token: it says how the first ended
    [ "$(left)" = "$there" ] || fail "a second start has started something"
    drive job-1-1-aa forget
    none_left "after forget"
    grep -q 'rank 1 of 2' job/output-job-1-1-aa-1.log || fail "output was not kept"
}
a_failure_ends_the_group() {
    spec 'name: bad' 'grace_s: 1' 'resources: {members: 2}' \
        <<<'if [ $RANK = 1 ]; then exit 7; fi; sleep 600'
    drive job-1-2-bb start wait:EXITED forget
    has 'EXITED member 0 status 7 class none: member 1'
    none_left "after a failure"
}
a_member_is_restarted_alone() {
    local was=$dir/job/was
    rm -f "$was"
    spec 'name: again' 'resources: {members: 2}' 'restarts: 1' <<<"if [ \$RANK = 0 ] || \
[ -e $was ]; then echo whole; else echo >$was; echo first; exit 9; fi"
    drive job-1-3-cc start wait:RESTARTED wait:EXITED logs:1 forget
    has 'RESTARTED member 1.*exit status 9' 'EXITED member 0 status 0' first whole
}
groups_are_adopted() {
    local begun=$dir/job/begun # written once the trap is set
    rm -f "$begun"-[01]
    spec 'name: long' 'grace_s: 20' 'resources: {members: 2}' \
        <<<"trap 'echo saved; exit 0' TERM; echo >$begun-\$RANK; while :; do sleep 0.1; done"
    drive job-1-4-dd start wait:STARTED "file:$begun-0" "file:$begun-1" members
    has "^member 0 running on ${host:-$(hostname)}" "^member 1 running on ${host:-.}"
    drive job-1-4-dd adopt wait:STARTED stop wait:EXITED
    has "EXITED member 0 status ${stopped:-0}"
    [ -n "${stopped:-}" ] || grep -q saved job/output-job-1-4-dd-1.log || fail "no time to save"
    drive job-1-4-dd forget
    none_left "after a stop"
    drive job-1-4-dd adopt wait:UNKNOWN
}
the_deaf_are_killed() {
    local deaf=$dir/job/deaf
    rm -f "$deaf"
    spec 'name: deaf' 'grace_s: 1' <<<"trap '' TERM; echo >$deaf; while :; do sleep 0.1; done"
    drive job-1-5-ee start wait:STARTED "file:$deaf" stop wait:EXITED forget
    has "EXITED member 0 status ${killed:-137}"
    none_left "after a kill"
}
members_have_several_processes() {
    spec 'name: many' 'resources: {members: 2, processes: 2}' \
        <<<'echo rank $RANK local $LOCAL_RANK of $WORLD_SIZE'
    drive job-1-6-ff start wait:EXITED logs:0 logs:1 forget
    has 'rank 0 local 0 of 4' 'rank 1 local 1 of 4' 'rank 2 local 0 of 4' 'rank 3 local 1 of 4'
}
# Two ranks of tandem: the digest of one rank, also when the tracker is another one at the end; one
# that cannot go on, one that is stopped.
ranks_of_tandem() {
    local yaml=$dir/job/job.yaml secret digest at=(--run-dir "$dir/job/run")
    rm -rf one "$dir/job/run" # a script may have several systems
    printf '%s\n' 'model: [flatten, linear]' 'data: {source: digits, count: 600}' \
        'train: {batch: 32, epochs: 20}' >"$yaml"
    "$tandem" train "$yaml" -q --run-dir one >one.out 2>&1 || { cp one.out out; fail "one rank"; }
    digest=$(grep -o 'digest sha256:[0-9a-f]*' one.out)
    secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n') # as the service gives it
    ranks() { # TOKEN ARGUMENTS -- STEPS
        local token=$1 words=()
        shift
        while [ "$1" != -- ]; do words+=("$1"); shift; done
        shift
        printf '%s\n' "${tandem_also-$also}" 'resources: {members: 2}' 'framework: tandem' \
            'grace_s: 30' "command: [$program, train$(printf ', "%s"' "${words[@]}")]" >spec.yaml
        drive "$token" -e "TANDEM_SECRET=$secret" -e TANDEM_STORE_RANK=0 "$@"
    }
    ranks job-3-1-aa "$yaml" -q "${at[@]}" -- start wait:STARTED
    ranks job-3-1-aa "$yaml" -q "${at[@]}" -- adopt wait:EXITED logs:0 forget
    has 'EXITED member 0 status 0' "$digest"
    # Every rank says why; the first one that fails ends the others, which may not have said it yet.
    ranks job-3-2-bb "$dir/job/nothing.yaml" -q -- start wait:EXITED logs:0 logs:1 forget
    has 'EXITED member 0 status 2' 'nothing.yaml'
    rm -rf "$dir/job/run"
    ranks job-3-3-cc "$yaml" -q "${at[@]}" --set train.epochs=100000 -- start wait:STARTED \
        "file:$dir/job/run/metrics.jsonl" stop wait:EXITED forget
    none_left "of tandem's ranks"
}
# Two workers of PyTorch: trained and adopted, failed, stopped.
workers_of_torch() {
    if ! find_torch; then
        echo "$name: no PyTorch here (TD_TORCH_PYTHON names one): its workers are skipped"
        return
    fi
    cp "$source/tests/e2e/ddp_group.py" "$source/tests/e2e/ddp_example.py" job/
    workers() { # TOKEN MODE STEPS
        local token=$1 mode=$2
        shift 2
        printf '%s\n' "${torch_also-$also}" 'framework: pytorch' 'resources: {members: 2}' \
            'grace_s: 5' "command: [$python, $dir/job/ddp_group.py, $mode, $dir/job]" >spec.yaml
        drive "$token" -e OMP_NUM_THREADS=1 -e GLOO_SOCKET_IFNAME=lo \
            -e PYTHONDONTWRITEBYTECODE=1 "$@"
    }
    local trained=("file:$dir/job/trained-0" "file:$dir/job/trained-1")
    workers job-4-1-aa wait start wait:STARTED "${trained[@]}"
    touch job/go
    workers job-4-1-aa wait adopt wait:EXITED logs:0 logs:1 forget
    has 'EXITED member 0 status 0' 'rank 0 ends' 'rank 1 ends'
    [ "$(grep -c '^parameters' out)" = 2 ] || fail "not both have trained"
    [ "$(grep '^parameters' out | sort -u | wc -l)" = 1 ] || fail "workers have other parameters"
    rm -f job/go job/trained-*
    workers job-4-2-bb fail start wait:EXITED forget
    has 'EXITED member 0 status 7 class none: member 1'
    rm -f job/trained-*
    workers job-4-3-cc wait start wait:STARTED "${trained[@]}" stop wait:EXITED forget
    has "EXITED member 0 status ${torch_stopped:-143}"
    rm -f job/trained-*
    none_left "of PyTorch's workers"
}
# Where members write into the job's directory: new metrics are told, artifacts are listed.
results_are_published() {
    mkdir -p job/artifacts
    rm -f job/metrics.jsonl
    spec 'name: results' <<<"echo {} >$dir/job/metrics.jsonl; echo kept >$dir/job/artifacts/a.txt"
    drive job-5-1-aa start wait:METRICS wait:EXITED forget
    has 'EXITED member 0 status 0'
    grep -q ' 5 a.txt$' job/attempts/job-5-1-aa/artifacts || fail "the artifact is not listed"
    none_left "of a group with results"
}
all_of_it() {
    two_members_run_and_end
    a_failure_ends_the_group
    a_member_is_restarted_alone
    groups_are_adopted
    the_deaf_are_killed
    members_have_several_processes
    ranks_of_tandem
    workers_of_torch
    none_left "in the end"
}
