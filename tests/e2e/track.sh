# SPDX-License-Identifier: Apache-2.0
# What every tracker over a real system must do; sourced by test_track_*.sh, which set `kind`, start
# the system, write service.yaml and define `left`: how many of a group's things are there.
# `also`: further keys of every spec ("image: small").
# shellcheck shell=bash disable=SC2034,SC2154 # variables are the script's
. "$(dirname "$0")/real.sh"
tracker=$build/tests/prog_tracker
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
    drive job-1-4-dd start wait:STARTED "file:$begun-0" "file:$begun-1"
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
all_of_it() {
    two_members_run_and_end
    a_failure_ends_the_group
    a_member_is_restarted_alone
    groups_are_adopted
    the_deaf_are_killed
    members_have_several_processes
    none_left "in the end"
}
