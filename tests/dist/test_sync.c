/* The seam of sync rules: a rule is one file (support/sync_average.c) and one line
 * (support/sync.def), chosen by name, and trains, validates, saves, resumes and ends like those of
 * the library; every rule says what it is; what cannot be is refused with one line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "job/job.h"
#include "parallel/sync.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/train_models.h"
#include "train/trainer.h"

#define TD_SYNC(id) extern const td__sync_ops td__sync_##id;
#include "support/sync.def"
#undef TD_SYNC

/* The same rule as `average`, in a version that knew one of its states. */
static td__sync_ops growing;
static bool grown;

/* Instead of the library's own list (parallel/sync_rules.c). */
const td__sync_ops *const td__sync_rules[] = {&growing,
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

static void disagree(ranks_ctx *r)
{
    run u = *(run *)r->arg;
    td__train_result got;
    u.opts.sync.set[0].value += r->rank;
    td_status st = run_rank(&u, r->comm, r->rank, &got);
    if (r->rank == 1)
        CHECK(st == TD_EINVAL &&
                  strstr(td_last_error(), "rank 1: train.sync.every is 3, but rank 0 "
                                          "has 2"),
              "%s", td_last_error());
    else
        CHECK(st != TD_OK, "rank 0 trains on");
}

/* ---- Choosing -------------------------------------------------------------------------------- */

TEST(every_rule_says_what_it_is)
{
    int n = 0;
    for (const td__sync_ops *r; (r = td__sync_rules[n]); n++) {
        int options = 0;
        CHECK(r->name && r->help && r->promise && r->step && r->size >= sizeof(td__sync), "rule %d",
              n);
        CHECK(td__sync_named(r->name) == r, "two rules are called %s", r->name);
        CHECK(!r->asked == !r->key && !r->key == !r->sample, "%s is asked for by no key", r->name);
        for (const td__key *k = r->options; k && k->path; k++, options++)
            CHECK(k->help && k->def && td__key_in_range(k, td__key_real(k, k->def)), "%s of %s",
                  k->path, r->name);
        CHECK(options <= TD__SYNC_SETTINGS, "%d options of %s", options, r->name);
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
        {{.rule = "averag"}, "train.sync: unknown sync rule 'averag'; did you mean 'average'?"},
        {{.rule = "average", .set = {{"tau", 3}}, .n_set = 1},
         "train.sync.tau: the sync rule average has no such option"},
        {{.rule = "average", .set = {{"every", 0}}, .n_set = 1},
         "train.sync.every: 0 is out of range for the sync rule average"},
        {{.rule = "average", .zero = 1},
         "train.sync: the sync rule average cannot be combined with parallel.zero, which is of the "
         "rule zero; leave one of them out"},
        {{.rule = "zero"}, "train.sync: the sync rule zero needs parallel.zero"},
        {{.rule = "exact-local"}, "train.sync: the sync rule exact-local is not for 2 ranks"},
        {{.rule = "exact-shm"}, "exact-shm is not for 2 ranks that share no memory"},
        {{.zero = 1, .backup = 1}, "parallel.backup: rank 0 keeps all weights and states"},
        {{.zero = 2, .compressor = "bf16"}, "bf16 needs whole gradients on all ranks"},
        {{.zero = 4}, "parallel.zero is 4: must be 0 to 3"},
        {{.backup = 2}, "2 backup workers of 2 ranks leave no rank to train"},
    };
    td_optim_opts optim = {.name = "sgd"};
    td__sync_job j = {.optim = &optim};
    td__sync_world w = {.ranks = 2, .starts = true};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        CHECK_EQ_INT(td__sync_check(&CASES[i].c, &j, &w), TD_EINVAL);
        CHECK(strstr(td_last_error(), CASES[i].text), "%s", td_last_error());
    }
    w.elastic = true;
    CHECK_EQ_INT(td__sync_check(&(td__sync_config){.rule = "exact-shm"}, &j, &w), TD_EINVAL);
    CHECK(strstr(td_last_error(), "exact-shm cannot be fixed for an elastic run"), "%s",
          td_last_error());
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

static int growing_states(td__sync *s, td__sync_block *out)
{
    int n = td__sync_average.states(s, out);
    return grown ? n : 1;
}

static void refused(ranks_ctx *r)
{
    td__train_result got;
    td_status st = run_rank(r->arg, r->comm, r->rank, &got);
    CHECK(st == TD_EINVAL || (r->size > 1 && st == TD_EPEER), "status %d", st);
    CHECK(strstr(td_last_error(), ": has 1 of 2 states of the sync rule growing, but not "
                                  "'sync/growing/delta': resume from another checkpoint"),
          "%s", td_last_error());
}

TEST(a_checkpoint_with_some_of_the_states_is_refused)
{
    run u;
    start(&u);
    set_every(&u, 2);
    u.opts.sync.rule = "growing";
    u.opts.checkpoint_dir = check_tmpdir();
    u.opts.checkpoint_every = 3;
    u.opts.steps = 6;
    grown = false;
    ranks_run(2, NULL, body, &u);
    grown = true;
    u.opts.steps = 9;
    u.resume = true;
    for (int n = 1; n <= 2; n++)
        ranks_run(n, NULL, refused, &u);
    set_every(&u, 2); /* another rule: none of its states are there, it begins anew */
    ranks_run(2, NULL, body, &u);
    CHECK_EQ_INT(u.got.end, TD_TRAIN_DONE);
    td__data_close(u.data);
}

/* ---- The job's key --------------------------------------------------------------------------- */

static td_status parse(const char *sync, const char *set, td__job **out)
{
    char text[256];
    int n = snprintf(text, sizeof text,
                     "model: [flatten, linear]\ndata: digits\ntrain:\n  epochs: 1\n  %s%s\n",
                     sync ? "sync: " : "", sync ? sync : "");
    return td__job_parse(text, (size_t)n, "job.yaml", &set, set ? 1 : 0, out);
}

TEST(a_job_names_a_rule_and_its_options)
{
    static const struct {
        const char *sync, *set, *rule;
        double every, momentum;
    } CASES[] = {
        {"average", NULL, "average", 4, 0},
        {"{rule: average, every: 7}", NULL, "average", 7, 0},
        {"average", "train.sync.momentum=0.5", "average", 4, 0.5},
        {"{rule: average, every: 7}", "train.sync=average", "average", 4, 0},
        {NULL, "train.sync={rule: average, every: 3}", "average", 3, 0},
        {"average", "train.sync=auto", NULL, 0, 0},
        {"exact-shm", NULL, "exact-shm", 0, 0},
        {NULL, NULL, NULL, 0, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__job *j;
        CHECK_OK(parse(CASES[i].sync, CASES[i].set, &j));
        const td__sync_config *c = &td__job_train(j)->sync;
        CHECK(!c->rule == !CASES[i].rule && (!c->rule || !strcmp(c->rule, CASES[i].rule)),
              "%s, %s: %s", CASES[i].sync, CASES[i].set, c->rule);
        const td__key *k = c->rule ? td__sync_named(c->rule)->options : NULL;
        if (k)
            CHECK(td__sync_setting_of(c, &k[0]) == CASES[i].every &&
                      td__sync_setting_of(c, &k[1]) == CASES[i].momentum,
                  "%s, %s", CASES[i].sync, CASES[i].set);
        td__job_destroy(j);
    }
}

static void digest_of(const char *sync, char hex[65])
{
    td__job *j;
    CHECK_OK(parse(sync, NULL, &j));
    CHECK_OK(td__job_digest(j, hex));
    td__job_destroy(j);
}

/* Runs made before the key can be resumed; what decides the numbers decides the digest. */
TEST(the_digest_has_the_rule_where_it_decides_the_numbers)
{
    static const char *const SAME[] = {"auto", "exact-local", "exact-shm"};
    char plain[65], named[65], other[65];
    digest_of(NULL, plain);
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        digest_of(SAME[i], named);
        assert_string_equal(named, plain);
    }
    digest_of("average", named);
    CHECK(strcmp(named, plain) != 0, "the rule is not in the digest");
    digest_of("{rule: average, every: 4}", other); /* the default */
    assert_string_equal(named, other);
    digest_of("{rule: average, every: 5}", other);
    CHECK(strcmp(named, other) != 0, "the option is not in the digest");
}

TEST(a_job_is_refused_with_one_line)
{
    static const struct {
        const char *sync, *set, *text;
    } CASES[] = {
        {"averag", NULL, "job.yaml:5:9: train.sync.rule: expected one of auto, "},
        {"averag", NULL, "found averag; did you mean average?"},
        {"{rule: averag, every: 3}", NULL, "did you mean average?"},
        {"[average]", NULL, "job.yaml:5:9: train.sync: expected a sync rule, found a list"},
        {"{rule: average, tau: 4}", NULL, "train.sync.tau: unknown key; known: rule, every, "},
        {"{rule: average, every: 0.5}", NULL,
         "train.sync.every: expected a whole number of at least 1, found 0.5"},
        {"{rule: average, momentum: 1}", NULL,
         "train.sync.momentum: expected a number from 0 to below 1, found 1"},
        {"{rule: exact-shm, every: 4}", NULL, "train.sync.every: unknown key; known: rule"},
        {"{every: 4}", NULL, "train.sync.every: unknown key; known: rule"},
        {"average", "parallel.zero=1",
         "job.yaml:5:9: train.sync: the sync rule average cannot be combined with parallel.zero"},
        {"average", "parallel.compress=bf16", "cannot be combined with parallel.compress"},
        {"zero", NULL, "the sync rule zero needs parallel.zero"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__job *j;
        CHECK_EQ_INT(parse(CASES[i].sync, CASES[i].set, &j), TD_EINVAL);
        CHECK(strstr(td_last_error(), CASES[i].text) && !strchr(td_last_error(), '\n'), "%s: %s",
              CASES[i].sync, td_last_error());
    }
}

TEST(help_lists_rules_and_options)
{
    char text[16384] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    CHECK_OK(td__job_help(f, "sync", false));
    fclose(f);
    for (int i = 0; td__sync_rules[i]; i++)
        CHECK(strstr(text, td__sync_rules[i]->help) && strstr(text, td__sync_rules[i]->promise),
              "%s is missing", td__sync_rules[i]->name);
    CHECK(strstr(text, "every  (4)\n        Steps between two averages."), "%s", text);
}

/* Ranks of two jobs are told what differs. */
TEST(ranks_agree_on_the_rule_and_its_options)
{
    run u;
    start(&u);
    set_every(&u, 2);
    ranks_run(2, NULL, disagree, &u);
    td__data_close(u.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_of_one_file_trains),
        cmocka_unit_test(ranks_meet_to_validate_to_save_and_at_the_end),
        cmocka_unit_test(a_checkpoint_is_of_params_that_all_have),
        cmocka_unit_test(a_checkpoint_with_some_of_the_states_is_refused),
        cmocka_unit_test(every_rule_says_what_it_is),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_job_names_a_rule_and_its_options),
        cmocka_unit_test(the_digest_has_the_rule_where_it_decides_the_numbers),
        cmocka_unit_test(a_job_is_refused_with_one_line),
        cmocka_unit_test(help_lists_rules_and_options),
        cmocka_unit_test(ranks_agree_on_the_rule_and_its_options),
    };
    growing = td__sync_average;
    growing.name = "growing";
    growing.states = growing_states;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
