/* test_digest_matrix.c -- whole jobs end with the digest of one rank, whatever is varied.
 *
 * Three job files (tests/dist/jobs: MLP; CNN with batch norm, dropout and augmentation; GPT), each
 * with a short last batch. What is expected is one rank alone with the `train` keys of the cell on
 * the default backend; `parallel` keys, the device (train.backend far), the number of ranks, how
 * they reach each other and with which algorithms, and being stopped and resumed on another number
 * of ranks must not change a bit of it. A new way to
 * train that promises the same bits is one line in WAYS or PLACES.
 *
 * The short form runs one cell of three: each way and place on a third of the numbers of ranks, and
 * each number of ranks with a third of the ways and places. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow, full */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "job/job.h"
#include "support/check.h"
#include "support/full.h"
#include "support/ranks.h"
#include "support/sanitized.h"

enum { MOST_SETS = 6 };

/* Races and bad memory show on few ranks as well as on many. */
enum { MOST_RANKS = SANITIZED ? 4 : 16 };

static const char *const JOBS[] = {"mlp", "cnn", "gpt"};
enum { N_JOBS = sizeof JOBS / sizeof *JOBS };

typedef struct cell {
    const char *job;
    const char *set[MOST_SETS];   /* keys of the job */
    const char *checkpoints;      /* folder, of rank 0; NULL: none */
    const td__train_result *want; /* NULL: nothing is expected */
    char text[160];               /* of the cell, for failures */
} cell;

/* Keys that must not change the result. */
static bool changes_nothing(const char *set)
{
    return strncmp(set, "parallel.", 9) == 0 || strncmp(set, "train.backend=", 14) == 0;
}

/* One rank's part of a cell; comm NULL: alone, with the keys that decide the result only. */
static td_status run_cell(const cell *c, td_comm *comm, td__train_result *out)
{
    const char *sets[MOST_SETS];
    const td__field *fields;
    char path[64];
    td__job *job = NULL;
    td__data *data = NULL;
    td__trainer *t = NULL;
    td__model model;
    bool found;
    int n = 0;

    for (int i = 0; i < MOST_SETS && c->set[i]; i++)
        if (comm || !changes_nothing(c->set[i]))
            sets[n++] = c->set[i];
    snprintf(path, sizeof path, "tests/dist/jobs/%s.yaml", c->job);
    td_status st = td__job_load(path, sets, n, &job);
    if (!st)
        st = td__data_open(td__job_data(job), &data);
    if (!st) {
        int n_fields = td__data_fields(data, &fields);
        st = td__job_model(job, fields, n_fields, &model);
    }
    if (!st) {
        td__train_opts o = *td__job_train(job);
        o.comm = comm;
        o.checkpoint_dir = comm && td_comm_rank(comm) == 0 ? c->checkpoints : NULL;
        o.checkpoint_every = -1;
        st = td__trainer_create(&o, &model, data, &t);
    }
    if (!st)
        st = td__trainer_resume(t, &found);
    if (!st)
        st = td__trainer_run(t, NULL, out);
    td__trainer_destroy(t);
    td__data_close(data);
    td__job_destroy(job);
    return st;
}

static void body(ranks_ctx *r)
{
    const cell *c = r->arg;
    td__train_result got;
    RANK_OK(r, run_cell(c, r->comm, &got));
    if (!c->want)
        return;
    RANK_CHECK(r, strcmp(got.digest, c->want->digest) == 0, "%s: other weights", c->text);
    RANK_CHECK(r, got.train_loss == c->want->train_loss, "%s: loss %a, not %a", c->text,
               got.train_loss, c->want->train_loss);
}

static void describe(cell *c, const char *place)
{
    int n = snprintf(c->text, sizeof c->text, "%s, %s", c->job, place);
    for (int i = 0; i < MOST_SETS && c->set[i] && n < (int)sizeof c->text; i++)
        n += snprintf(c->text + n, sizeof c->text - (size_t)n, ", %s", c->set[i]);
}

/* ---- What is trained and how, on any number of ranks ----------------------------------------- */

static const char *const WAYS[][MOST_SETS] = {
    {"train.accumulate=1"},
    {"train.accumulate=2"},
    {"train.accumulate=3", "train.clip=0.2"},
    {"train.accumulate=4", "train.precision=bf16"},
    {"train.precision=bf16", "train.clip=0.2"},
    {"train.micro_batches=1"},
    {"parallel.bucket_mb=0.001", "parallel.in_flight=2"},
    {"parallel.zero=1", "train.clip=0.2"},
    {"parallel.zero=2", "train.accumulate=2"},
    {"train.backend=far", "parallel.zero=2"},
    {"train.backend=far", "train.accumulate=2", "train.clip=0.2", "train.precision=bf16"},
};
enum { N_WAYS = sizeof WAYS / sizeof *WAYS };

static void check_ways(const ranks_opts *place, const char *name, const int *ranks, int n_ranks)
{
    for (int j = 0; j < N_JOBS; j++)
        for (int w = 0; w < N_WAYS; w++) {
            td__train_result want;
            cell c = {.job = JOBS[j]};
            memcpy(c.set, WAYS[w], sizeof c.set);
            describe(&c, name);
            CHECK_OK(run_cell(&c, NULL, &want));
            c.want = &want;
            for (int i = 0; i < n_ranks && ranks[i] <= MOST_RANKS; i++)
                if (full_or_sampled(j + w + i, 3))
                    ranks_run(ranks[i], place, body, &c);
        }
}

TEST(every_way_on_1_to_9_and_16_ranks)
{
    static const int RANKS[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
    check_ways(NULL, "threads", RANKS, (int)(sizeof RANKS / sizeof *RANKS));
}

/* Where messages are, gradients go bucket by bucket during backward. */
TEST(every_way_over_messages)
{
    static const int RANKS[] = {2, 3, 5};
    check_ways(&(ranks_opts){.transport = "tcp"}, "tcp", RANKS,
               (int)(sizeof RANKS / sizeof *RANKS));
}

/* ---- Who reaches whom, and by which algorithms ----------------------------------------------- */

static const struct {
    const char *name;
    ranks_opts o;
} PLACES[] = {
    {"shm", {.transport = "shm"}},
    {"shm, processes", {.transport = "shm", .processes = true}},
    {"tcp", {.transport = "tcp"}},
    {"tcp, processes", {.transport = "tcp", .processes = true}},
    {"hosts of 3", {.transport = "shm", .per_host = 3}},
    {"direct", {.transport = "tcp", .comm = {.algo = "direct"}}},
    {"exchange", {.transport = "tcp", .comm = {.algo = "allreduce=exchange"}}},
    {"butterfly", {.transport = "tcp", .comm = {.algo = "allreduce=butterfly"}}},
    {"blocks", {.transport = "tcp", .comm = {.algo = "allreduce=blocks"}}},
    {"trees", {.transport = "tcp", .comm = {.algo = "allreduce=tree,broadcast=tree"}}},
    {"star", {.transport = "tcp", .comm = {.algo = "allreduce=star"}}},
    {"chains", {.transport = "tcp", .comm = {.algo = "all_gather=ring,broadcast=chain"}}},
    {"hierarchical",
     {.transport = "tcp", .per_host = 2, .comm = {.algo = "allreduce=hierarchical"}}},
};

TEST(every_place)
{
    static const char *const SETS[] = {"train.accumulate=2", "train.clip=0.2"};
    td__train_result want[N_JOBS];
    for (int j = 0; j < N_JOBS; j++)
        CHECK_OK(run_cell(&(cell){.job = JOBS[j], .set = {SETS[0], SETS[1]}}, NULL, &want[j]));
    for (int p = 0; p < (int)(sizeof PLACES / sizeof *PLACES); p++)
        for (int n = 2; n <= 9 && n <= MOST_RANKS; n++)
            for (int j = 0; j < N_JOBS; j++) {
                cell c = {.job = JOBS[j], .set = {SETS[0], SETS[1]}, .want = &want[j]};
                if (!full_or_sampled(n + p + 2 * j, N_JOBS))
                    continue;
                describe(&c, PLACES[p].name);
                ranks_run(n, &PLACES[p].o, body, &c);
            }
}

/* ---- Saved by N ranks in one way, loaded by M in another ------------------------------------- */

static const struct {
    const char *job, *saved, *loaded; /* keys that differ */
} RESUMED[] = {
    {"gpt", "parallel.threads=1", "parallel.threads=2"},
    {"cnn", "parallel.zero=1", "parallel.zero=2"},
    {"gpt", "parallel.zero=2", "parallel.zero=0"},
    {"cnn", "train.backend=far", "train.backend=cpu"},
    {"mlp", "train.backend=cpu", "train.backend=far"},
};

TEST(resumed_on_any_other_number_of_ranks)
{
    static const int RANKS[] = {1, 2, 3, 5, 8};
    enum { N = sizeof RANKS / sizeof *RANKS };
    for (size_t k = 0; k < sizeof RESUMED / sizeof *RESUMED; k++) {
        td__train_result want;
        cell c = {.job = RESUMED[k].job, .set = {"train.accumulate=2"}};
        CHECK_OK(run_cell(&c, NULL, &want));
        for (int i = 0; i < N && RANKS[i] <= MOST_RANKS; i++)
            for (int m = 0; m < N && RANKS[m] <= MOST_RANKS; m++) {
                char steps[32];
                if (!full_or_sampled((int)k + i + 2 * m, 3))
                    continue;
                snprintf(steps, sizeof steps, "train.steps=%d", 1 + (i + m) % 3); /* of 4 or 6 */
                c.checkpoints = check_tmpdir();
                c.set[1] = RESUMED[k].saved;
                c.set[2] = steps;
                c.want = NULL;
                ranks_run(RANKS[i], NULL, body, &c);
                c.set[1] = RESUMED[k].loaded;
                c.set[2] = NULL;
                c.want = &want;
                describe(&c, "resumed");
                ranks_run(RANKS[m], m % 2 ? &(ranks_opts){.transport = "tcp"} : NULL, body, &c);
                check_tmpdir_remove();
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_on_1_to_9_and_16_ranks),
        cmocka_unit_test(every_way_over_messages),
        cmocka_unit_test(every_place),
        cmocka_unit_test(resumed_on_any_other_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
