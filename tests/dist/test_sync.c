/* The seam of sync rules: a rule is one file (support/sync_average.c) and one line
 * (support/sync.def), chosen by name, and trains, validates, saves, resumes and ends like those of
 * the library; every rule says what it is; what cannot be is refused with one line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "parallel/sync.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/train_models.h"
#include "train/trainer.h"

#define TD_SYNC(id) extern const td__sync_ops td__sync_##id;
#include "support/sync.def"
#undef TD_SYNC

static const td__sync_ops *const RULES[] = {
#define TD_SYNC(id) &td__sync_##id,
#include "support/sync.def"
#undef TD_SYNC
    NULL};

enum { SAMPLES = 96, BATCH = 24 };

typedef struct run {
    const train_model *m;
    td__train_opts opts;
    td__data *data;
    bool resume;
    td__train_result got; /* of rank 0 */
} run;

static td_status open_part(void *user, td__part part, td__dataset **out)
{
    const run *u = user;
    *out = NULL;
    if (part == TD_PART_TEST)
        return TD_ENOTSUP;
    *out = train_model_data(u->m, part == TD_PART_TRAIN ? SAMPLES : 20, 3 + (unsigned)part);
    return TD_OK;
}

static td_status run_rank(const run *u, td_comm *comm, int rank, td__train_result *out)
{
    td__model model = {.build = u->m->build};
    td__train_opts o = u->opts;
    td__trainer *t = NULL;
    bool found;
    o.comm = comm;
    if (rank)
        o.checkpoint_dir = NULL;
    td_status st = td__trainer_create(&o, &model, u->data, &t);
    if (!st && u->resume && rank == 0)
        st = td__trainer_resume(t, &found);
    if (!st)
        st = td__trainer_run(t, NULL, out);
    td__trainer_destroy(t);
    return st;
}

static void body(ranks_ctx *r)
{
    run *u = r->arg;
    td__train_result got = {0};
    RANK_OK(r, run_rank(u, r->comm, r->rank, &got));
    if (r->rank == 0)
        u->got = got;
}

/* A model without batch norm and dropout, plain sgd: averages of params are those of gradients. */
static void start(run *u)
{
    *u = (run){.m = &TRAIN_MODELS[0]};
    while (!u->m->per_row || u->m->ids || u->m->precision != TD_F32)
        u->m++;
    u->opts = (td__train_opts){.batch = BATCH,
                               .steps = 9,
                               .threads = 1,
                               .micro_batches = 12,
                               .valid_every = 4,
                               .seed = 7,
                               .optim = {.name = "sgd", .lr = 0.05},
                               .sync = {.rules = RULES},
                               .checkpoint_every = -1};
    CHECK_OK(td__data_open(
        &(td__data_opts){.source = "digits", .open_part = open_part, .open_user = u}, &u->data));
}

static void set_every(run *u, double every)
{
    u->opts.sync.rule = "average";
    u->opts.sync.set[0] = (td__sync_setting){"every", every};
    u->opts.sync.n_set = 1;
}

/* ---- Training -------------------------------------------------------------------------------- */

TEST(a_rule_of_one_file_trains)
{
    run u;
    td__train_result exact, one;
    start(&u);
    CHECK_OK(run_rank(&u, NULL, 0, &exact));
    set_every(&u, 1);
    CHECK_OK(run_rank(&u, NULL, 0, &one));
    assert_string_equal(one.digest, exact.digest);
    for (int n = 2; n <= 4; n++) /* which divide the batch: ranks have the same number of rows */
        for (int tcp = 0; tcp < 2; tcp++) {
            ranks_run(n, tcp ? &(ranks_opts){.transport = "tcp"} : NULL, body, &u);
            CHECK_EQ_INT(u.got.end, TD_TRAIN_DONE);
            CHECK(fabs(u.got.train_loss - exact.train_loss) < 1e-4 * fabs(exact.train_loss) &&
                      fabs(u.got.best - exact.best) < 1e-4 * fabs(exact.best),
                  "%d ranks: loss %g, not %g; best %g, not %g", n, u.got.train_loss,
                  exact.train_loss, u.got.best, exact.best);
        }
    td__data_close(u.data);
}

/* Between averages params differ; at the end, which compares them, they do not. */
TEST(ranks_meet_to_validate_to_save_and_at_the_end)
{
    run u;
    char often[65];
    start(&u);
    u.opts.checkpoint_dir = check_tmpdir();
    u.opts.checkpoint_every = 3;
    set_every(&u, 1e6);
    ranks_run(3, NULL, body, &u);
    snprintf(often, sizeof often, "%s", u.got.digest);
    CHECK(isfinite(u.got.best), "there was no validation");
    u.opts.valid_every = -1; /* they meet less often: other weights */
    u.opts.checkpoint_dir = check_tmpdir();
    ranks_run(3, NULL, body, &u);
    CHECK(strcmp(u.got.digest, often) != 0, "validation without a meeting");
    td__data_close(u.data);
}

/* And of the states of the rule: without them the averages have another momentum. */
TEST(a_checkpoint_is_of_params_that_all_have)
{
    run u;
    char whole[65];
    start(&u);
    u.opts.checkpoint_every = 3;
    set_every(&u, 2);
    u.opts.sync.set[u.opts.sync.n_set++] = (td__sync_setting){"momentum", 0.5};
    u.opts.checkpoint_dir = check_tmpdir();
    ranks_run(2, NULL, body, &u);
    snprintf(whole, sizeof whole, "%s", u.got.digest);
    u.opts.checkpoint_dir = check_tmpdir();
    u.opts.steps = 6;
    ranks_run(2, NULL, body, &u);
    u.opts.steps = 9;
    u.resume = true;
    ranks_run(2, NULL, body, &u);
    assert_string_equal(u.got.digest, whole);
    td__data_close(u.data);
}

/* ---- Choosing -------------------------------------------------------------------------------- */

TEST(every_rule_says_what_it_is)
{
    td__sync_config c = {.rules = RULES};
    int n = 0;
    for (const td__sync_ops *r; (r = td__sync_list(&c, n)); n++) {
        CHECK(r->name && r->help && r->promise && r->step && r->size >= sizeof(td__sync), "rule %d",
              n);
        for (int k = 0; k < n; k++)
            CHECK(strcmp(r->name, RULES[k]->name) != 0, "two rules are called %s", r->name);
        CHECK(!r->traits || r->fits, "%s is never chosen by the job's options", r->name);
    }
    CHECK(n > 6, "%d rules", n);
    for (int ranks = 1; ranks <= 3; ranks++) /* the defaults of a job have a rule */
        for (int shared = 0; shared < 2; shared++) {
            const td__sync_ops *r;
            td__sync_world w = {.ranks = ranks, .shared = shared};
            CHECK_OK(td__sync_find(&(td__sync_config){0}, &w, &r));
            CHECK(strncmp(r->name, "exact-", 6) == 0 && strstr(r->promise, "the bits of one rank"),
                  "%s", r->name);
        }
}

TEST(what_cannot_be_is_refused)
{
    static const struct {
        td__sync_config c;
        const char *text;
    } CASES[] = {
        {{.rule = "averag"}, "there is no sync rule 'averag' for 2 ranks; did you mean 'average'?"},
        {{.rule = "average", .set = {{"tau", 3}}, .n_set = 1},
         "the sync rule average has no option 'tau'"},
        {{.rule = "average", .set = {{"every", 0}}, .n_set = 1},
         "every of the sync rule average is 0: must be 1 to 1e+06"},
        {{.rule = "average", .zero = 1},
         "the sync rule average does not go with options of the rule zero"},
        {{.zero = 1, .backup = 1}, "parallel.backup: rank 0 keeps all weights and states"},
        {{.zero = 2, .compressor = "bf16"}, "bf16 needs whole gradients on all ranks"},
        {{.zero = 4}, "parallel.zero is 4: must be 0 to 3"},
        {{.backup = 2}, "2 backup workers of 2 ranks leave no rank to train"},
    };
    td_optim_opts optim = {.name = "sgd"};
    td__sync_job j = {.optim = &optim};
    td__sync_world w = {.ranks = 2, .starts = true};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__sync_config c = CASES[i].c;
        c.rules = RULES;
        CHECK_EQ_INT(td__sync_check(&c, &j, &w), TD_EINVAL);
        CHECK(strstr(td_last_error(), CASES[i].text), "%s", td_last_error());
    }
    j.backend = "far";
    w.elastic = true;
    CHECK_EQ_INT(td__sync_check(&(td__sync_config){.zero = 1}, &j, &w), TD_EINVAL);
    CHECK(strstr(td_last_error(), "train.backend far: parallel.zero"), "%s", td_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_of_one_file_trains),
        cmocka_unit_test(ranks_meet_to_validate_to_save_and_at_the_end),
        cmocka_unit_test(a_checkpoint_is_of_params_that_all_have),
        cmocka_unit_test(every_rule_says_what_it_is),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
