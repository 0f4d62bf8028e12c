/* Rules whose ranks are not in step, with an order of messages that is given: on 2 to 4 ranks each
 * follows its published recurrence, which is computed here in double on a quadratic and a ridge
 * regression, on every rank after every step. A run that has gone in the order of arrival is
 * repeated from its metrics.jsonl with the same bits; files that are no such record are refused. */
/* Test labels: slow */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "data/partition.h"
#include "parallel/sync.h"
#include "run/event_json.h"
#include "run/run_dir.h"
#include "support/check.h"
#include "support/sync_runs.h"

enum { P = SYNC_PARAMS, STEPS = SYNC_STEPS, MOST = SYNC_MOST_RANKS, MEET = 6, TAU = 4 };
static const char *const RULES[] = {"async-peer", "aeasgd", "async-admm"};
enum { N_RULES = sizeof RULES / sizeof *RULES };
static const double BETA = 0.7, RHO = 2;

/* ---- What was applied ------------------------------------------------------------------------ */

typedef struct words {
    int32_t at[1024];
    size_t n;
} words;

static void put(words *w, int32_t word)
{
    CHECK(w->n < sizeof w->at / sizeof *w->at, "%zu words", w->n);
    w->at[w->n++] = word;
}

/* Lines of metrics.jsonl, one for each meeting of each rank. */
static const char *write_orders(const char *rule, const words *of, int n)
{
    const char *path = check_path("metrics.jsonl");
    td__text t = {0};
    td__text_printf(&t, "{\"kind\": \"begin\", \"step\": 1, \"ranks\": %d}\n", n);
    for (int r = 0; r < n; r++)
        for (size_t at = 0, i = 0; i < of[r].n; i++)
            if (of[r].at[i] == TD__ORDER_MET) {
                i++;
                td__json_order(&t, &(td__order_event){.step = STEPS,
                                                      .rule = rule,
                                                      .rank = r,
                                                      .words = of[r].at + at,
                                                      .n = i + 1 - at});
                at = i + 1;
            }
    CHECK_OK(td__text_status(&t));
    check_write_file(path, t.data, t.used);
    td__text_fini(&t);
    return path;
}

/* ---- The recurrences, in double -------------------------------------------------------------- */

typedef struct batches {
    float rows[STEPS][SYNC_BATCH * SYNC_WIDTH];
    int32_t y[STEPS][SYNC_BATCH];
} batches;

static void read_batches(batches *all)
{
    td__dataset *d;
    td__loader *l = sync_batches(&d);
    for (int i = 0; i < STEPS; i++) {
        const td__batch *b;
        CHECK_OK(td__loader_next(l, &b));
        memcpy(all->rows[i], b->field[0], sizeof all->rows[i]);
        memcpy(all->y[i], b->field[1], sizeof all->y[i]);
    }
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

/* Ranks that take turns as a seed has it; the order does not depend on numbers. */
typedef struct ranks {
    sync_sim s; /* x of each, the centre c, duals y */
    const batches *all;
    const sync_run *run; /* NULL: the order alone is wanted */
    unsigned seed;
    words order[MOST];
    int step[MOST];                     /* done */
    double trace[STEPS][MOST][P];       /* after each */
    double grad[STEPS][MOST][P];        /* async-peer: of each rank's rows, without the penalty */
    int applied[MOST][MOST];            /* there: steps of the second that the first has applied */
    bool at_centre[MOST];               /* a rank waits for it */
    int exchanged[MOST];                /* its step then; */
    bool served[MOST][MOST];            /* aeasgd: ranges of the second have the first's */
    double moved[MOST][P], w[MOST][P];  /* what comes back; async-admm: what was sent */
    double newest[MOST][P], z[MOST][P]; /* what z is made of; z as each has it */
} ranks;

static int pick(ranks *k, int n)
{
    return (int)((k->seed = k->seed * 1664525u + 1013904223u) >> 16) % n;
}

/* The gradient of the mean loss of rank r's rows, without the penalty. */
static void gradient(const ranks *k, int r, int step, double *out)
{
    const void *fields[] = {k->all->rows[step - 1], k->all->y[step - 1]};
    td__batch b = {.rows = SYNC_BATCH};
    memcpy(b.field, fields, sizeof fields);
    sync_sim_grad(&k->s, r, &b, k->s.x[r], out);
    for (int p = 0; p < P; p++)
        out[p] -= k->s.problem == SYNC_RIDGE_REGRESSION ? SYNC_RIDGE * k->s.x[r][p] : 0;
}

/* SGD, whose penalty is on the params that are updated. */
static void update(ranks *k, int r, const double *grad)
{
    double ridge = k->s.problem == SYNC_RIDGE_REGRESSION ? SYNC_RIDGE : 0;
    for (int p = 0; p < P; p++)
        k->s.x[r][p] -= SYNC_LR * (grad[p] + ridge * k->s.x[r][p]);
}

static void keep_trace(ranks *k, int r)
{
    memcpy(k->trace[k->step[r] - 1][r], k->s.x[r], sizeof k->s.x[r]);
}

/* The next step of rank r; false: it is at a meeting, or at the centre. */
static bool advance(ranks *k, int r, int until)
{
    if (k->step[r] == until || k->at_centre[r])
        return false;
    int step = ++k->step[r];
    gradient(k, r, step, k->grad[step - 1][r]);
    update(k, r, k->grad[step - 1][r]);
    return true;
}

static void met(ranks *k, int step)
{
    for (int r = 0; r < k->s.n; r++) {
        const words *w = &k->order[r];
        if (w->n && w->at[w->n - 1] >= 0 && (w->n == 1 || w->at[w->n - 2] != TD__ORDER_MET))
            put(&k->order[r], TD__ORDER_END);
        put(&k->order[r], TD__ORDER_MET);
        put(&k->order[r], step);
    }
}

/* ---- async-peer ------------------------------------------------------------------------------ */

static void apply_of(ranks *k, int r, int from)
{
    update(k, r, k->grad[k->applied[r][from]++][from]);
    put(&k->order[r], from);
}

static void peers_meet(ranks *k, int until)
{
    for (int r = 0; r < k->s.n; r++) {
        for (int from = 0; from < k->s.n; from++)
            while (from != r && k->applied[r][from] < until)
                apply_of(k, r, from);
        put(&k->order[r], TD__ORDER_END);
    }
    for (int p = 0; p < P; p++) {
        double mean = sync_sim_mean(&k->s, p);
        for (int r = 0; r < k->s.n; r++)
            k->s.x[r][p] = mean;
    }
    met(k, until);
}

static void simulate_peers(ranks *k, int until)
{
    for (int left = k->s.n * MEET; left > 0;) {
        int r = pick(k, k->s.n);
        if (!advance(k, r, until))
            continue;
        left--;
        for (int i = pick(k, 6); i > 0; i--) {
            int from = pick(k, k->s.n);
            if (from != r && k->applied[r][from] < k->step[from])
                apply_of(k, r, from);
        }
        put(&k->order[r], TD__ORDER_END);
        keep_trace(k, r);
    }
    peers_meet(k, until);
}

/* ---- aeasgd ---------------------------------------------------------------------------------- */

static bool in_range(const ranks *k, int p, int rank)
{
    int64_t begin, end, at = k->run ? (int64_t)k->run->place[p] : 0;
    td__even_range(k->run ? (int64_t)k->run->block : 0, rank, k->s.n, &begin, &end);
    return at >= begin && at < end;
}

static void serve(ranks *k, int r, int range)
{
    for (int p = 0; p < P; p++)
        if (in_range(k, p, range)) {
            k->moved[r][p] = BETA / k->s.n * (k->s.x[r][p] - k->s.c[p]);
            k->s.c[p] += k->moved[r][p];
        }
    k->served[r][range] = true;
    put(&k->order[range], r);
}

/* A rank's own range comes first, in the others it may be overtaken. */
static void go_to_centre(ranks *k, int r)
{
    int range = pick(k, k->s.n);
    range = k->served[r][r] ? range : r;
    if (k->served[r][range])
        return;
    serve(k, r, range);
    for (int i = 0; i < k->s.n; i++)
        if (!k->served[r][i])
            return;
    memset(k->served[r], 0, sizeof k->served[r]);
    k->at_centre[r] = false;
    for (int p = 0; p < P; p++)
        k->s.x[r][p] -= k->moved[r][p];
}

/* ---- async-admm ------------------------------------------------------------------------------ */

/* The proximal step that follows each of SGD. */
static void pull(ranks *k, int r)
{
    double by = SYNC_LR * RHO;
    for (int p = 0; p < P; p++)
        k->s.x[r][p] = (k->s.x[r][p] + by * (k->z[r][p] - k->s.y[r][p])) / (1 + by);
}

static void make_centre(ranks *k)
{
    for (int p = 0; p < P; p++) {
        k->s.c[p] = 0;
        for (int r = 0; r < k->s.n; r++)
            k->s.c[p] += k->newest[r][p] / k->s.n;
    }
}

/* Some of those that wait are in it. */
static void move_centre(ranks *k)
{
    bool in[MOST] = {false};
    int some = 0;
    for (int r = 0; r < k->s.n; r++) {
        in[r] = k->at_centre[r] && pick(k, 3) > 0;
        some += in[r];
        if (in[r])
            memcpy(k->newest[r], k->w[r], sizeof k->w[r]);
    }
    if (!some)
        return;
    make_centre(k);
    for (int r = 0; r < k->s.n; r++) {
        for (int p = 0; p < P && in[r]; p++) {
            k->s.y[r][p] += k->s.x[r][p] - k->s.c[p];
            k->z[r][p] = k->s.c[p];
        }
        if (in[r]) {
            put(&k->order[0], r);
            k->at_centre[r] = false;
        }
    }
    put(&k->order[0], TD__ORDER_END);
}

/* ---- Those with a centre --------------------------------------------------------------------- */

static void begin_exchange(ranks *k, int r)
{
    k->at_centre[r] = true;
    k->exchanged[r] = k->step[r];
    for (int p = 0; p < P; p++)
        k->w[r][p] = k->s.x[r][p] + k->s.y[r][p];
}

static void visit_centre(ranks *k, int r, bool admm)
{
    bool was = k->at_centre[r];
    if (admm)
        move_centre(k);
    else if (was)
        go_to_centre(k, r);
}

static void simulate_centre(ranks *k, int until, bool admm)
{
    bool over = false;
    while (!over) {
        int r = pick(k, k->s.n);
        if (advance(k, r, until)) {
            if (admm)
                pull(k, r);
            if (k->step[r] % TAU == 0)
                begin_exchange(k, r);
            else
                keep_trace(k, r);
        } else if (k->at_centre[r]) {
            visit_centre(k, r, admm);
        } else if (k->exchanged[r] != until) {
            begin_exchange(k, r); /* of the meeting: no step's */
        }
        over = true;
        for (int i = 0; i < k->s.n; i++) {
            bool just = k->step[i] && k->step[i] % TAU == 0 && k->exchanged[i] == k->step[i];
            if (just && !k->at_centre[i])
                keep_trace(k, i);
            over = over && !k->at_centre[i] && k->exchanged[i] == until;
        }
    }
    if (admm)
        make_centre(k);
    for (int i = 0; i < k->s.n; i++) {
        memcpy(k->s.x[i], k->s.c, sizeof k->s.c);
        memcpy(k->z[i], k->s.c, sizeof k->s.c);
        memcpy(k->newest[i], k->s.c, sizeof k->s.c);
        memset(k->s.y[i], 0, sizeof k->s.y[i]);
    }
    met(k, until);
}

/* Ranks meet in the middle, to save, and at the end. */
static void simulate(ranks *k, int rule)
{
    for (int r = 0; r < k->s.n; r++) {
        memcpy(k->z[r], k->s.c, sizeof k->s.c);
        memcpy(k->newest[r], k->s.c, sizeof k->s.c);
    }
    for (int until = MEET; until <= STEPS; until += MEET)
        if (rule == 0)
            simulate_peers(k, until);
        else
            simulate_centre(k, until, rule == 2);
}

/* ---- The runs -------------------------------------------------------------------------------- */

static void start(sync_run *u, sync_problem problem, int rule)
{
    sync_run_init(u, problem, RULES[rule]);
    u->opts.checkpoint_every = MEET;
    if (rule > 0)
        sync_run_set(u, "tau", TAU);
    if (rule == 1)
        sync_run_set(u, "beta", BETA);
    if (rule == 2)
        sync_run_set(u, "rho", RHO);
}

static void check_case(sync_problem problem, int rule, int n, const batches *all,
                       const ranks_opts *opts)
{
    static float trace[STEPS][MOST][P];
    static unsigned seed;
    static ranks k;
    sync_run u, far;
    start(&u, problem, rule);
    u.trace = trace;
    k = (ranks){.s = {.n = n}, .all = all, .seed = ++seed};
    simulate(&k, rule);
    u.opts.sync.replay = write_orders(RULES[rule], k.order, n);
    sync_run_on(&u, n, opts);
    k = (ranks){.s = {.n = n}, .all = all, .seed = seed, .run = &u};
    sync_sim_begin(&k.s, &u);
    simulate(&k, rule);
    for (int p = 0; p < P; p++) {
        for (int r = 0; r < n; r++)
            for (int i = 0; i < STEPS; i++)
                CHECK(fabs((double)trace[i][r][p] - k.trace[i][r][p]) < 1e-5,
                      "%s, problem %d, %d ranks: after step %d param %d of rank %d is %.9g, not "
                      "%.9g",
                      RULES[rule], (int)problem, n, i + 1, p, r, (double)trace[i][r][p],
                      k.trace[i][r][p]);
        double got = (double)u.last[p], want = k.s.x[0][p];
        CHECK(fabs(got - want) < 1e-5 && fabs((double)u.first[p] - want) > 1e-3,
              "%s, problem %d, %d ranks: param %d is %.9g in the end, not %.9g", RULES[rule],
              (int)problem, n, p, got, want);
    }
    if (problem != SYNC_QUADRATIC) {
        sync_run_end(&u);
        return;
    }
    start(&far, problem, rule);
    far.opts.sync.replay = u.opts.sync.replay;
    far.opts.backend = "far";
    sync_run_on(&far, n, NULL);
    CHECK(!strcmp(far.got.digest, u.got.digest), "%s: a replay, on far, has other weights",
          RULES[rule]);
    sync_run_end(&far);
    sync_run_end(&u);
}

TEST(every_rule_follows_its_recurrence)
{
    static batches all;
    read_batches(&all);
    check_tmpdir();
    for (int rule = 0; rule < N_RULES; rule++)
        for (int n = 2; n <= MOST; n++) {
            check_case(SYNC_QUADRATIC, rule, n, &all, NULL);
            check_case(SYNC_RIDGE_REGRESSION, rule, n, &all,
                       n == 3 ? &(ranks_opts){.transport = "tcp"} : NULL);
        }
    check_tmpdir_remove();
}

/* ---- A run in the order of arrival ----------------------------------------------------------- */

typedef struct recorder {
    td__observer base;
    td__observer *file;
    atomic_int stop;
    uint64_t at; /* the step after which rank 0 is to stop; 0: none */
} recorder;

static td_status pass_on(td__observer *o, const td__order_event *e)
{
    td__observer *file = ((recorder *)o)->file;
    return file->order(file, e);
}

static td_status begin_file(td__observer *o, const td__train_info *info)
{
    td__observer *file = ((recorder *)o)->file;
    return file->begin(file, info);
}

static td_status stop_at(td__observer *o, const td__step_event *e)
{
    recorder *r = (recorder *)o;
    if (e->step == r->at)
        atomic_store(&r->stop, 1);
    return TD_OK;
}

enum { LONG = 60 };

/* With its metrics.jsonl; replay: the one of another run; stop: after this step, 0 never. */
static void record(sync_run *u, int rule, int n, const char *dir, const char *replay, uint64_t stop)
{
    recorder r = {.base = {.begin = begin_file, .step = stop_at, .order = pass_on}, .at = stop};
    start(u, SYNC_RIDGE_REGRESSION, rule);
    u->opts.steps = LONG;
    u->opts.checkpoint_every = 25;
    u->opts.optim = (td_optim_opts){.name = "adam", .lr = 0.01};
    u->opts.sync.replay = replay;
    CHECK_OK(td__metrics_file_create(dir, 0, &r.file));
    u->observer = &r.base;
    u->stop = &r.stop;
    sync_run_on(u, n, NULL);
    td__metrics_file_destroy(r.file);
}

TEST(a_run_is_repeated_with_the_same_bits)
{
    check_tmpdir();
    for (int rule = 0; rule < N_RULES; rule++)
        for (int n = 1; n <= 3; n += 2) {
            static char dir[2][4096], path[4200];
            sync_run first, again;
            for (int i = 0; i < 2; i++) {
                snprintf(dir[i], sizeof dir[i], "%s", check_path(i ? "again" : "first"));
                CHECK(!mkdir(dir[i], 0777) || errno == EEXIST, "%s", dir[i]);
            }
            snprintf(path, sizeof path, "%s/metrics.jsonl", dir[0]);
            record(&first, rule, n, dir[0], NULL, 0);
            record(&again, rule, n, dir[1], path, 0);
            CHECK(!strcmp(first.got.digest, again.got.digest), "%s, %d ranks: other weights",
                  RULES[rule], n);
            sync_run_end(&again);
            /* Ranks that are to stop leave it: one would wait for another that has stopped. */
            record(&again, rule, n, dir[1], path, 30);
            CHECK(again.got.step >= 30, "step %d", (int)again.got.step);
            sync_run_end(&again);
            sync_run_end(&first);
        }
    check_tmpdir_remove();
}

/* ---- Files that are no record of such a run -------------------------------------------------- */

#define BEGIN "{\"kind\": \"begin\", \"step\": 1, \"ranks\": 2}\n"
#define ORDER(rule, rank, rest) \
    "{\"kind\": \"order\", \"rule\": \"" rule "\", \"rank\": " rank ", \"counted\": " rest "}\n"

typedef struct file_case {
    const char *rule, *text, *says; /* NULL: it is good */
} file_case;

TEST(other_files_are_refused)
{
    static const file_case CASES[] = {
        {"async-peer",
         BEGIN ORDER("async-peer", "0", "[[1], [], [1]], \"met\": 2")
             ORDER("async-peer", "1", "[[], [0, 0]]") ORDER("async-peer", "1", "[[]], \"met\": 2"),
         NULL},
        {"aeasgd",
         BEGIN ORDER("aeasgd", "0", "[[1, 0, 0, 1]], \"met\": 11")
             ORDER("aeasgd", "1", "[[1], [0, 1, 0]], \"met\": 11"),
         NULL},
        {"async-admm",
         BEGIN ORDER("async-admm", "0", "[[1], [0, 1], [0]], \"met\": 11")
             ORDER("async-admm", "1", "[], \"met\": 11"),
         NULL},
        {"aeasgd", "not JSON\n", "not lines of JSON"},
        {"aeasgd", BEGIN, "no order of messages is in it"},
        {"aeasgd", "{\"kind\": \"begin\", \"step\": 1, \"ranks\": 3}\n", "is of a run on 3 ranks"},
        {"aeasgd",
         BEGIN BEGIN ORDER("aeasgd", "0", "[[0, 1]], \"met\": 5")
             ORDER("aeasgd", "1", "[[0, 1]], \"met\": 5"),
         "is of a run that was resumed"},
        {"aeasgd", BEGIN ORDER("async-peer", "0", "[[1], []], \"met\": 1"),
         "is of a run with the sync rule async-peer, not aeasgd"},
        {"aeasgd", BEGIN ORDER("aeasgd", "2", "[], \"met\": 1"), "counts rank 2, and there are 2"},
        {"aeasgd", BEGIN ORDER("aeasgd", "0", "[[0, -1]], \"met\": 1"), "counts rank -1"},
        {"aeasgd", BEGIN ORDER("aeasgd", "0", "[0], \"met\": 1"), "is not lists of ranks"},
        {"aeasgd", BEGIN ORDER("aeasgd", "0", "7, \"met\": 1"), "is not whole"},
        {"aeasgd", BEGIN ORDER("aeasgd", "0", "[], \"met\": 0"), "is not whole"},
        {"aeasgd", BEGIN ORDER("aeasgd", "0", "[], \"met\": 9999999999"), "is not whole"},
        {"aeasgd", BEGIN ORDER("aeasgd", "0", "[[0, 1]], \"met\": 5"),
         "the meetings of rank 1 are not those of rank 0"},
        {"aeasgd",
         BEGIN ORDER("aeasgd", "0", "[[0, 1]], \"met\": 5")
             ORDER("aeasgd", "1", "[[0]], \"met\": 5"),
         "in steps 1 to 5 rank 1 applied other"},
        {"async-peer",
         BEGIN ORDER("async-peer", "0", "[[1], []], \"met\": 1")
             ORDER("async-peer", "1", "[[0, 1], []], \"met\": 1"),
         "rank 1 applied other"},
        {"async-peer",
         BEGIN ORDER("async-peer", "0", "[[1]], \"met\": 1")
             ORDER("async-peer", "1", "[[0], []], \"met\": 1"),
         "rank 0 applied other"},
        {"async-admm",
         BEGIN ORDER("async-admm", "0", "[[1, 1], [0], [0]], \"met\": 11")
             ORDER("async-admm", "1", "[], \"met\": 11"),
         "rank 0 applied other"},
        {"async-admm",
         BEGIN ORDER("async-admm", "0", "[[1, 0], [], [1, 0]], \"met\": 11")
             ORDER("async-admm", "1", "[], \"met\": 11"),
         "rank 0 applied other"},
        {"async-admm",
         BEGIN ORDER("async-admm", "0", "[[1, 0]], \"met\": 5")
             ORDER("async-admm", "1", "[[0]], \"met\": 5"),
         "rank 1 applied other"},
    };
    td_optim_opts optim = {.name = "sgd"};
    td__sync_job j = {.optim = &optim};
    td__sync_world w = {.ranks = 2, .starts = true};
    check_tmpdir();
    td__sync_config missing = {.rule = "aeasgd", .replay = check_path("nowhere")};
    CHECK_EQ_INT(td__sync_check(&missing, &j, &w), TD_EINVAL);
    CHECK(strstr(td_last_error(), "of a run with an asynchronous sync rule"), "%s",
          td_last_error());
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const file_case *f = &CASES[i];
        td__sync_config c = {.rule = f->rule, .replay = check_path("metrics.jsonl")};
        check_write_file(c.replay, f->text, strlen(f->text));
        td_status st = td__sync_check(&c, &j, &w);
        CHECK(st == (f->says ? TD_EINVAL : TD_OK) && (!f->says || strstr(td_last_error(), f->says)),
              "file %d: %s, %s", (int)i, td_status_name(st), st ? td_last_error() : "");
    }
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_follows_its_recurrence),
        cmocka_unit_test(a_run_is_repeated_with_the_same_bits),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
