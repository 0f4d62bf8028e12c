/* Quotas of control groups: both versions, limits of outer groups, odd and hostile files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cpu.h"
#include "support/check.h"

/* A file under the root, with its folders. */
static void put(const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s", check_path(name));
    for (char *c = path + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(path, 0700);
            *c = '/';
        }
    check_write_file(path, text, strlen(text));
}

static const struct {
    const char *title;
    const char *file[4][2]; /* name, text */
    int want;
} CASES[] = {
    {"no groups", {{NULL}}, 0},
    {"version 2 without a limit",
     {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "max 100000\n"}},
     0},
    {"version 2",
     {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"}},
     2},
    {"part of a processor is rounded up",
     {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "250000 100000\n"}},
     3},
    {"less than one",
     {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "1000 100000\n"}},
     1},
    {"an outer group is narrower",
     {{"proc/self/cgroup", "0::/a/b/c\n"},
      {"sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "300000 100000\n"}},
     3},
    {"a container that sees itself at the root",
     {{"proc/self/cgroup", "0::/../../kubepods/pod1\n"},
      {"sys/fs/cgroup/cpu.max", "400000 100000\n"}},
     4},
    {"version 1",
     {{"proc/self/cgroup", "12:pids:/x\n4:cpu,cpuacct:/d/e\n0::/\n"},
      {"sys/fs/cgroup/cpu,cpuacct/d/e/cpu.cfs_quota_us", "150000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/d/e/cpu.cfs_period_us", "50000\n"}},
     3},
    {"version 1 without a limit",
     {{"proc/self/cgroup", "2:cpu:/\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     0},
    {"cpuset is another controller",
     {{"proc/self/cgroup", "2:cpuset:/\n"},
      {"sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "100000\n"},
      {"sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n"}},
     0},
    {"nonsense",
     {{"proc/self/cgroup", "::::\nx\n0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "-5 0 what\n"}},
     0},
    {"a huge number",
     {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "9000000000000000000 1\n"}},
     1000000},
};

TEST(quotas_of_control_groups)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *root = check_tmpdir();
        for (int k = 0; k < 4 && CASES[i].file[k][0]; k++)
            put(CASES[i].file[k][0], CASES[i].file[k][1]);
        int got = td__cpu_quota(root);
        CHECK(got == CASES[i].want, "%s: %d, not %d", CASES[i].title, got, CASES[i].want);
        check_tmpdir_remove();
    }
}

TEST(there_is_always_a_processor)
{
    int quota = td__cpu_quota("");
    CHECK(td__processors() >= 1 && (!quota || td__processors() <= quota), "%d of a quota of %d",
          td__processors(), quota);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotas_of_control_groups),
        cmocka_unit_test(there_is_always_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
