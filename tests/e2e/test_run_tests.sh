#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run-tests judges failures: what passes when repeated is flaky, what must never happen fails
# at once, three flaky tests fail the run. On test programs made here.
. "$(dirname "$0")/lib.sh"

# fake NAME TIMES COMMANDS: a test that fails in that many runs, by these commands
fake() {
    cat >"$1.sh" <<FAKE
echo run >>$1.runs
[ "\$(wc -l <$1.runs)" -gt $2 ] || { $3; }
FAKE
    cat >>CTestTestfile.cmake <<TEST
add_test($1 bash $dir/$1.sh)
set_tests_properties($1 PROPERTIES
  TIMEOUT ${limit:-60} WORKING_DIRECTORY $dir SKIP_RETURN_CODE 77)
TEST
}
anew() { rm -rf ./*.sh ./*.runs CTestTestfile.cmake flaky shared Testing; }
# judged STATUS LAST_LINE [OPTION...]: what run-tests makes of the tests
judged() {
    local want=$2
    run "$1" "$source/tools/run-tests" "$dir" "${@:3}"
    tail -n 1 out | grep -q "^$want in [0-9]* s$" || fail "the last line is not '$want'"
}
runs() { [ "$(wc -l <"$1.runs")" = "$2" ] || fail "$1 ran $(wc -l <"$1.runs") times, not $2"; }

fake good 0 true
fake skipped 9 'exit 77'
judged 0 '1 passed, 0 failed, 0 flaky, 1 skipped'

anew
fake good 0 true
fake flaky 1 'echo the log of it; exit 1'
judged 0 '2 passed, 0 failed, 1 flaky, 0 skipped'
has 'flaky: .*-flaky failed, and passed when repeated'
grep -q 'the log of it' flaky/*-flaky.log || fail "no log is kept"
runs flaky 2
runs good 1
judged 0 '2 passed, 0 failed, 0 flaky, 0 skipped' # the logs of an earlier run do not count

anew
fake good 0 true
fake bad 9 'exit 1'
judged 1 '1 passed, 1 failed, 0 flaky, 0 skipped'
runs bad 2

# What is never excused, although it would pass when repeated.
never() { # WHY COMMANDS
    anew
    fake once 1 "$2"
    judged 1 '0 passed, 1 failed, 0 flaky, 0 skipped'
    has "once failed (.*$1"
    runs once 1
}
never 'sanitizer report' "echo '==1==ERROR: AddressSanitizer: heap-use-after-free'; exit 1"
never 'sanitizer report' "echo 'WARNING: ThreadSanitizer: data race (pid=1)'; exit 66"
never 'sanitizer report' "echo 'a.c:3:9: runtime error: signed integer overflow'; exit 1"
limit=1 never timeout 'exec tail -f /dev/null'
never SegFault 'kill -SEGV $$'
never 'wrong result' "echo 'tests/dist/test_x.c:8: a == b: gpt, tcp: other weights'; exit 1"
never 'wrong result' "echo 'test_x: tcp: another digest than that of one rank'; exit 1"
never 'wrong result' "echo 'test_x: killed: metrics.jsonl has steps 1 2 4'; exit 1"
never crash "echo 'test_x: tandem train job.yaml gave 139 instead of 0'; exit 1"
never hang "echo 'test_x: tandem train gave 124 instead of 0'; exit 1"
never hang "echo 'tests/fault/test_x.c:8: 0: process 1 of 3 hangs in generation 2'; exit 1"

# Words that the program itself may say are no verdict.
anew
fake once 1 "echo 'digest sha256:00'; echo 'test_x: no such line in the output'; exit 1"
judged 0 '1 passed, 0 failed, 1 flaky, 0 skipped'

# Three flaky tests are no accident: in one run, and in several that share their logs.
anew
for n in 1 2 3; do fake "once$n" 1 'exit 1'; done
judged 1 '0 passed, 3 failed, 0 flaky, 0 skipped'
anew
for n in 1 2; do fake "once$n" 1 'exit 1'; done
judged 0 '2 passed, 0 failed, 2 flaky, 0 skipped' --flaky shared
rm ./*.sh ./*.runs CTestTestfile.cmake
fake other 1 'exit 1'
judged 1 '0 passed, 1 failed, 2 flaky, 0 skipped' --flaky shared
exit 0
