/* Backup workers: a rank that is late holds nobody up, n ranks count in every step, what is dropped
 * is counted, and a run is a function of who counted: replayed from its metrics.jsonl it has the
 * same bits. Batch norm, dropout, clipping, row-sparse gradients; stopping, resuming, failures. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/train_models.h"
#include "checkpoint/checkpoint.h"
#include "run/run_dir.h"
#include "train/trainer.h"

enum { SAMPLES = 70, BATCH = 16, MOST_RANKS = 6, MOST_STEPS = 64, WAIT_S = 60 };

/* ---- A run ----------------------------------------------------------------------------------- */

typedef struct run {
    const train_model *m;
    td__train_opts opts;
    td__data *data;
    int slow, lag;       /* rank that hands in when the others are `lag` steps further; 0: none */
    const char *dir;     /* of metrics.jsonl; NULL: none */
    uint64_t stop_after; /* on `stopper` */
    int stopper;
    bool resume;
    td_status want; /* of all ranks that notice */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t stepped;
    uint64_t step, total; /* done by rank 0; of the run */
    uint64_t handed_in;   /* by the slow rank */
    bool over, stuck;     /* stuck: the others never got so far */
    int n_counted[MOST_STEPS];
    bool counted[MOST_STEPS][MOST_RANKS];
    td__train_result got;
    uint64_t dropped[MOST_RANKS];
} run;

/* The trainer's data are the samples of a small model. */
static td_status open_part(void *user, td__part part, td__dataset **out)
{
    const run *u = user;
    *out = NULL;
    if (part == TD_PART_TEST)
        return TD_ENOTSUP;
    *out = train_model_data(u->m, part == TD_PART_TRAIN ? SAMPLES : 20, 3 + (unsigned)part);
    return TD_OK;
}

static td__data *open_data(run *u)
{
    td__data *d;
    CHECK_OK(td__data_open(
        &(td__data_opts){.source = "digits", .open_part = open_part, .open_user = u}, &d));
    return d;
}

static void make_late(void *user, int rank, uint64_t step)
{
    run *u = user;
    struct timespec until;
    if (rank != u->slow || !u->lag)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&u->lock);
    uint64_t last = u->stop_after ? u->stop_after : u->total;
    uint64_t goal = step + (uint64_t)u->lag < last ? step + (uint64_t)u->lag : last;
    while (u->step < goal && !u->over && !u->stuck)
        u->stuck = pthread_cond_timedwait(&u->stepped, &u->lock, &until) == ETIMEDOUT;
    u->handed_in++;
    pthread_mutex_unlock(&u->lock);
}

typedef struct watcher {
    td__observer head;
    run *u;
    int rank;
    atomic_int stop;
} watcher;

static td_status on_begin(td__observer *o, const td__train_info *info)
{
    run *u = ((watcher *)o)->u;
    pthread_mutex_lock(&u->lock);
    u->total = info->steps;
    pthread_mutex_unlock(&u->lock);
    return TD_OK;
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    watcher *w = (watcher *)o;
    run *u = w->u;
    pthread_mutex_lock(&u->lock);
    u->step = e->step;
    if (e->step < MOST_STEPS) {
        u->n_counted[e->step] = e->n_counted;
        for (int i = 0; i < e->n_counted; i++)
            u->counted[e->step][e->counted[i]] = true;
    }
    pthread_cond_broadcast(&u->stepped);
    pthread_mutex_unlock(&u->lock);
    if (u->stop_after && e->step == u->stop_after)
        atomic_store(&w->stop, 1);
    return TD_OK;
}

static td_status run_rank(run *u, td_comm *comm, int rank, td__train_result *out)
{
    td__model model = {.build = u->m->build};
    td__train_opts o = u->opts;
    td__observer *metrics = NULL;
    td__trainer *t = NULL;
    watcher w = {.head = {.begin = on_begin, .step = on_step}, .u = u, .rank = rank};
    bool found;

    o.comm = comm;
    o.sync.before_share = make_late;
    o.sync.before_share_user = u;
    if (rank)
        o.checkpoint_dir = NULL;
    td_status st = td__trainer_create(&o, &model, u->data, &t);
    if (!st)
        st = td__trainer_observe(t, &w.head);
    if (!st && rank == 0 && u->dir)
        st = td__metrics_file_create(u->dir, 0, &metrics);
    if (!st && metrics)
        st = td__trainer_observe(t, metrics);
    if (!st && u->resume && rank == 0)
        st = td__trainer_resume(t, &found);
    if (!st)
        st = td__trainer_run(t, rank == u->stopper ? &w.stop : NULL, out);
    for (int r = 0; !st && rank == 0 && r < out->n_dropped; r++)
        u->dropped[r] = out->dropped[r];
    td__trainer_destroy(t);
    td__metrics_file_destroy(metrics);
    return st;
}

static void body(ranks_ctx *r)
{
    run *u = r->arg;
    td__train_result got = {0};
    td_status st = run_rank(u, r->comm, r->rank, &got);
    char text[512];
    snprintf(text, sizeof text, "%s", td_last_error());
    pthread_mutex_lock(&u->lock);
    u->over = true;
    pthread_cond_broadcast(&u->stepped);
    if (r->rank == 0)
        u->got = got;
    pthread_mutex_unlock(&u->lock);
    RANK_CHECK(r, st == u->want, "%s (%s)", td_status_name(st), text);
}

/* Kernels are made once here: thread sanitizers do not see the locks of the library that makes
 * them, when ranks do it at once. */
static void make_kernels(run *u)
{
    td__train_result got;
    int backup = u->opts.sync.backup;
    u->opts.sync.backup = 0;
    CHECK_OK(run_rank(u, NULL, 0, &got));
    u->opts.sync.backup = backup;
}

static void start(run *u, const train_model *m, int accumulate)
{
    *u = (run){.m = m, .stopper = -1};
    u->opts = (td__train_opts){.batch = BATCH,
                               .epochs = 3,
                               .threads = 1,
                               .micro_batches = 8,
                               .accumulate = accumulate,
                               .valid_every = 2,
                               .seed = 7,
                               .precision = m->precision,
                               .optim = {.name = m->optimizer, .lr = 0.02, .clip_norm = 0.7},
                               .sync.backup = 1,
                               .checkpoint_every = -1};
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->stepped, NULL);
    u->data = open_data(u);
    make_kernels(u);
}

static void finish(run *u)
{
    td__data_close(u->data);
    pthread_cond_destroy(&u->stepped);
    pthread_mutex_destroy(&u->lock);
}

/* The same run again, from the start. */
static void again(run *u, int ranks, const char *transport)
{
    memset(u->counted, 0, sizeof u->counted);
    memset(u->n_counted, 0, sizeof u->n_counted);
    memset(u->dropped, 0, sizeof u->dropped);
    u->step = u->handed_in = 0;
    u->over = false;
    ranks_run(ranks, &(ranks_opts){.transport = transport}, body, u);
    CHECK(!u->stuck, "after %d s in which the slow rank waited: step %d", WAIT_S, (int)u->step);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

TEST(a_slow_rank_holds_nobody_up)
{
    static const char *const TRANSPORTS[] = {"inproc", "shm", "tcp"};
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        run u;
        char digest[65] = "";
        start(&u, &TRAIN_MODELS[m], 1 + m % 2);
        u.slow = 1 + m % 3;
        u.lag = 1 + m % 4;
        for (int k = 0; k < 3; k++) {
            again(&u, 4, TRANSPORTS[k]);
            CHECK_EQ_INT(u.got.end, TD_TRAIN_DONE);
            CHECK(isfinite(u.got.best), "there was no validation");
            for (uint64_t s = 1; s <= u.got.step; s++)
                CHECK(u.n_counted[s] == 3 && !u.counted[s][u.slow], "step %d: %d counted, slow %d",
                      (int)s, u.n_counted[s], u.counted[s][u.slow]);
            for (int r = 0; r < 4; r++)
                CHECK(u.dropped[r] == (r == u.slow ? u.handed_in : 0), "%d of rank %d",
                      (int)u.dropped[r], r);
            CHECK(u.handed_in > 0 && u.handed_in <= (u.got.step + 1) / 2 + 1, "%d of %d steps",
                  (int)u.handed_in, (int)u.got.step);
            CHECK(!k || strcmp(digest, u.got.digest) == 0, "%s, %s: other weights", u.m->name,
                  TRANSPORTS[k]);
            snprintf(digest, sizeof digest, "%s", u.got.digest);
        }
        finish(&u);
    }
}

TEST(a_run_is_replayed_from_its_metrics)
{
    for (int ranks = 2; ranks <= 5; ranks++)
        for (int b = 1; b < ranks && b < 3; b++) {
            run u;
            char digest[65], path[512];
            bool counted[MOST_STEPS][MOST_RANKS];
            start(&u, &TRAIN_MODELS[(ranks + b) % N_TRAIN_MODELS], 1);
            u.opts.sync.backup = b;
            u.dir = check_tmpdir();
            again(&u, ranks, "inproc");
            snprintf(digest, sizeof digest, "%s", u.got.digest);
            snprintf(path, sizeof path, "%s/metrics.jsonl", u.dir);
            memcpy(counted, u.counted, sizeof counted);
            for (uint64_t s = 1; s <= u.got.step; s++)
                CHECK(u.n_counted[s] == ranks - b, "step %d: %d of %d", (int)s, u.n_counted[s],
                      ranks - b);
            u.opts.sync.backup_replay = path;
            u.dir = NULL;
            again(&u, ranks, ranks % 2 ? "shm" : "tcp");
            CHECK(memcmp(counted, u.counted, sizeof counted) == 0, "other ranks count");
            CHECK(strcmp(digest, u.got.digest) == 0, "%d ranks, %d late: other weights", ranks, b);
            finish(&u);
            check_tmpdir_remove();
        }
}

/* Five ranks, four micro-batches: rank 0 has no rows, and everybody else is needed. */
TEST(all_that_counts_is_the_mean)
{
    run u;
    td__train_result want;
    start(&u, &TRAIN_MODELS[0], 1);
    u.opts.micro_batches = 4;
    u.opts.sync.backup = 0;
    u.opts.epochs = 1;
    CHECK_OK(run_rank(&u, NULL, 0, &want));
    u.opts.sync.backup = 1;
    again(&u, 5, "inproc");
    CHECK_EQ_INT(u.got.step, want.step);
    CHECK(fabs(u.got.train_loss - want.train_loss) < 1e-4 * fabs(want.train_loss) &&
              fabs(u.got.best - want.best) < 1e-4 * fabs(want.best),
          "loss %g and %g, not %g and %g", u.got.train_loss, u.got.best, want.train_loss,
          want.best);
    CHECK(!u.counted[1][0] && u.counted[1][4], "who counts");
    finish(&u);
}

TEST(stopping_and_resuming)
{
    run u;
    start(&u, &TRAIN_MODELS[0], 1);
    u.slow = 2;
    u.lag = 2;
    again(&u, 3, "inproc");
    td__train_result whole = u.got;
    u.opts.checkpoint_dir = check_tmpdir();
    u.stop_after = 5;
    u.stopper = 0;
    again(&u, 3, "inproc");
    CHECK_EQ_INT(u.got.end, TD_TRAIN_INTERRUPTED);
    CHECK_EQ_INT(u.got.step, 5);
    u.stop_after = 0;
    u.resume = true;
    again(&u, 3, "inproc");
    CHECK_EQ_INT(u.got.end, TD_TRAIN_DONE);
    CHECK(strcmp(u.got.digest, whole.digest) == 0, "resumed with other weights");
    check_tmpdir_remove();
    finish(&u);
}

/* Rank 0 says what is wrong, and nobody waits. */
static void refused_body(ranks_ctx *r)
{
    run *u = r->arg;
    td__train_result got;
    td_status st = run_rank(u, r->comm, r->rank, &got);
    RANK_CHECK(r, st == TD_EINVAL || (st == TD_EPEER && r->rank), "%s (%s)", td_status_name(st),
               td_last_error());
}

TEST(what_cannot_be)
{
    run u;
    start(&u, &TRAIN_MODELS[0], 1);
    u.want = TD_EINVAL;
    u.opts.sync.backup = 3;
    again(&u, 3, "inproc");
    u.opts.sync.backup = 1;
    u.opts.sync.compressor = "allreduce";
    again(&u, 3, "inproc");
    finish(&u);
}

TEST(replays_of_other_files)
{
    static const char *const TEXTS[] = {
        "no json\n", "{\"kind\": \"step\", \"step\": 1, \"loss\": 1}\n",
        "{\"kind\": \"step\", \"step\": 1, \"counted\": [0, 7]}\n",
        "{\"kind\": \"step\", \"step\": 1, \"counted\": [0, 1]}\n" /* no step 2 */};
    check_tmpdir();
    for (int i = 0; i < 4; i++) {
        run u;
        start(&u, &TRAIN_MODELS[0], 1);
        u.opts.sync.backup_replay = check_path("metrics.jsonl");
        check_write_file(u.opts.sync.backup_replay, TEXTS[i], strlen(TEXTS[i]));
        ranks_run(3, NULL, refused_body, &u);
        finish(&u);
    }
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_rank_holds_nobody_up),
        cmocka_unit_test(a_run_is_replayed_from_its_metrics),
        cmocka_unit_test(all_that_counts_is_the_mean),
        cmocka_unit_test(stopping_and_resuming),
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(replays_of_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
