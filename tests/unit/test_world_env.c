/* Who am I? Every launcher's variables, contradictions, wrong numbers, secrets that are none; and
 * the lists of hosts that tandem launch takes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "coll/comm_setup.h"
#include "launch/hosts.h"
#include "support/check.h"

enum { VARS = 6 };

static void clear(void)
{
    for (int i = 0; i < TD_ENV_COUNT; i++)
        unsetenv(td__env_name((td__env)i));
}

static void set(const char *const *pairs)
{
    clear();
    for (int i = 0; i < VARS && pairs[i]; i++) {
        char name[64];
        const char *eq = strchr(pairs[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(eq - pairs[i]), pairs[i]);
        setenv(name, eq + 1, 1);
    }
    setenv("XDG_RUNTIME_DIR", check_tmpdir(), 1);
}

TEST(every_launcher_is_known)
{
    static const struct {
        const char *vars[VARS];
        int rank, size, local_rank, local_size;
        bool mpi;
    } CASES[] = {
        {{NULL}, 0, 1, 0, 1, false},
        {{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=2",
          "OMPI_COMM_WORLD_LOCAL_SIZE=4"},
         2,
         4,
         2,
         4,
         true},
        {{"PMI_RANK=1", "PMI_SIZE=3", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=3"}, 1, 3, 1, 3, true},
        {{"SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_LOCALID=3"}, 3, 4, 3, -1, false},
        {{"SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_JOB_ID=9", "SLURM_STEP_ID=0"},
         3,
         4,
         -1,
         -1,
         false},
        /* a batch script, where srun has started nobody */
        {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=9"}, 0, 1, 0, 1, false},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, 1, 2, 1, 2, false},
        /* torchrun or mpirun inside an allocation: Slurm's describe the allocation */
        {{"RANK=5", "WORLD_SIZE=8", "SLURM_PROCID=1", "SLURM_NTASKS=2"}, 5, 8, -1, -1, false},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "RANK=1", "WORLD_SIZE=2"},
         1,
         2,
         -1,
         -1,
         true},
        {{"TANDEM_RANK=0", "TANDEM_SIZE=1", "RANK=0", "WORLD_SIZE=1"}, 0, 1, -1, -1, false},
    };
    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__world w;
        set(CASES[i].vars);
        CHECK_OK(td__world_from_env(&w));
        CHECK(w.rank == CASES[i].rank && w.size == CASES[i].size &&
                  w.local_rank == CASES[i].local_rank && w.local_size == CASES[i].local_size &&
                  w.mpi == CASES[i].mpi,
              "case %d: rank %d of %d, local %d of %d, mpi %d", i, w.rank, w.size, w.local_rank,
              w.local_size, w.mpi);
        CHECK(w.host[0] && w.hostname[0] && !strcmp(w.address, "127.0.0.1"), "case %d: host", i);
        CHECK((w.size > 1) == (w.meeting[0] != 0), "case %d: meets at \"%s\"", i, w.meeting);
        check_tmpdir_remove();
    }
}

TEST(nonsense_is_one_clear_line)
{
    static const struct {
        const char *vars[VARS], *says;
    } CASES[] = {
        {{"RANK=1"}, "WORLD_SIZE is not"},
        {{"TANDEM_SIZE=4"}, "TANDEM_RANK is not"},
        {{"RANK=4", "WORLD_SIZE=4"}, "RANK is \"4\""},
        {{"RANK=-1", "WORLD_SIZE=4"}, "RANK is \"-1\""},
        {{"RANK=1x", "WORLD_SIZE=4"}, "RANK is \"1x\""},
        {{"RANK=1", "WORLD_SIZE=99999999999"}, "WORLD_SIZE"},
        {{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=9"}, "LOCAL_RANK"},
        {{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"}, "LOCAL_RANK"},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "RANK=0", "WORLD_SIZE=2"},
         "the environment has two launchers"},
        {{"TANDEM_RANK=0", "TANDEM_SIZE=2", "PMI_RANK=0", "PMI_SIZE=4"},
         "the environment has two launchers"},
        {{"RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2"}, "several hosts"},
        {{"RANK=1", "WORLD_SIZE=4", "TANDEM_STORE=a:1"}, "TANDEM_SECRET_FILE is not"},
        {{"RANK=1", "WORLD_SIZE=4", "TANDEM_STORE=a:1", "TANDEM_SECRET_FILE=/nowhere"}, "/nowhere"},
        {{"RANK=1", "WORLD_SIZE=4", "TANDEM_STORE=a:1", "TANDEM_SECRET=12"}, "hexadecimal"},
        {{"RANK=1", "WORLD_SIZE=4", "TANDEM_STORE=a:1", "TANDEM_SECRET=12", "TANDEM_STORE_RANK=x"},
         "hexadecimal"},
    };
    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__world w;
        set(CASES[i].vars);
        CHECK_STATUS(td__world_from_env(&w), TD_EINVAL);
        CHECK(strstr(td_last_error(), CASES[i].says) && !strchr(td_last_error(), '\n'),
              "case %d: %s", i, td_last_error());
        check_tmpdir_remove();
    }
}

TEST(secrets_are_private)
{
    static const char HEX[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    const char *const vars[VARS] = {"RANK=0", "WORLD_SIZE=2", "TANDEM_STORE=127.0.0.1:1"};
    char hex[TD_SECRET_HEX];
    td__world w;
    set(vars);
    const char *path = check_path("secret");
    setenv("TANDEM_SECRET_FILE", path, 1);
    check_write_file(path, HEX, sizeof HEX - 1);
    chmod(path, 0644);
    CHECK_STATUS(td__world_from_env(&w), TD_EINVAL);
    chmod(path, 0600);
    CHECK_OK(td__world_from_env(&w));
    td__secret_hex(&w.secret, hex);
    CHECK(!strcmp(hex, HEX), "%s", hex);
    CHECK(!w.meeting[0] && !strcmp(w.store, "127.0.0.1:1"), "the store is known");
    CHECK_EQ_INT(w.server, 0);
    setenv("TANDEM_SECRET_FILE", "/nowhere", 1); /* in a container there is none */
    setenv("TANDEM_SECRET", HEX, 1);
    setenv("TANDEM_STORE_RANK", "0", 1);
    CHECK_OK(td__world_from_env(&w));
    td__secret_hex(&w.secret, hex);
    CHECK(!strcmp(hex, HEX) && w.server == 1, "%s: %d", hex, w.server);
    setenv("TANDEM_STORE_RANK", "1", 1);
    CHECK_OK(td__world_from_env(&w));
    CHECK_EQ_INT(w.server, 2);
    unsetenv("TANDEM_SECRET");
    unsetenv("TANDEM_STORE_RANK");
    setenv("TANDEM_SECRET_FILE", path, 1);
    check_write_file(path, HEX, 40); /* cut off */
    CHECK_STATUS(td__world_from_env(&w), TD_EINVAL);
    check_tmpdir_remove();
}

TEST(hosts_by_name_and_by_override)
{
    const char *const vars[VARS] = {NULL};
    td__world a, b;
    set(vars);
    CHECK_OK(td__world_from_env(&a));
    setenv("TANDEM_HOST", "other", 1);
    CHECK_OK(td__world_from_env(&b));
    CHECK(strcmp(a.host, b.host) != 0 && !strcmp(b.host, "other"), "%s, %s", a.host, b.host);
    check_tmpdir_remove();
}

TEST(lists_of_hosts)
{
    static const struct {
        const char *text;
        int size;                   /* asked for */
        int n, total, first, count; /* hosts, ranks, and the last host's */
    } GOOD[] = {
        {"a", 0, 1, 1, 0, 1},       {"a:4,b:4", 0, 2, 8, 4, 4},   {"a:4,b:4", 5, 2, 5, 4, 1},
        {"a:4,b:4", 3, 1, 3, 0, 3}, {" a:2 , b ", 0, 2, 3, 2, 1}, {"10.0.0.1:2", 0, 1, 2, 0, 2},
    };
    static const struct {
        const char *text;
        int size;
    } BAD[] = {{"", 0},    {"a:0", 0}, {"a:x", 0}, {"a:4,", 0},          {":4", 0},  {"a:", 0},
               {"a:1", 2}, {"a,a", 0}, {"-oX", 0}, {"a:99999999999", 0}, {"a:-1", 0}};
    td__hosts h;
    for (int i = 0; i < TD_LEN(GOOD); i++) {
        CHECK_OK(td__hosts_parse(GOOD[i].text, GOOD[i].size, &h));
        const td__host *last = &h.host[h.n - 1];
        CHECK(h.n == GOOD[i].n && h.size == GOOD[i].total && last->first == GOOD[i].first &&
                  last->count == GOOD[i].count,
              "\"%s\": %d hosts, %d ranks, the last from %d on %d", GOOD[i].text, h.n, h.size,
              last->first, last->count);
        td__hosts_fini(&h);
    }
    for (int i = 0; i < TD_LEN(BAD); i++)
        CHECK_STATUS(td__hosts_parse(BAD[i].text, BAD[i].size, &h), TD_EINVAL);

    static const char FILE_TEXT[] = "# machines\nlocalhost:2\n\nb slots=3  # the big one\n";
    check_tmpdir();
    const char *path = check_path("hosts");
    check_write_file(path, FILE_TEXT, sizeof FILE_TEXT - 1);
    CHECK_OK(td__hosts_read(path, 0, &h));
    CHECK(h.n == 2 && h.size == 5 && h.host[0].local && !h.host[1].local, "%d hosts, %d ranks", h.n,
          h.size);
    td__hosts_fini(&h);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_known), cmocka_unit_test(nonsense_is_one_clear_line),
        cmocka_unit_test(secrets_are_private),     cmocka_unit_test(hosts_by_name_and_by_override),
        cmocka_unit_test(lists_of_hosts),
    };
    return cmocka_run_group_tests_name("world_env", tests, NULL, NULL);
}
