/* Buckets, the queue that carries them, and who says that a gradient is final. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/runner.h"
#include "parallel/bucket_queue.h"
#include "parallel/buckets.h"
#include "support/check.h"
#include "support/train_models.h"
#include "tandem/tandem.h"

/* ---- A model --------------------------------------------------------------------------------- */

typedef struct model {
    td_program *p;
    td_params *ps;
    td_runner *r;
} model;

enum { ROWS = 4 };

static model make(const train_model *m)
{
    model out;
    td_graph *g;
    td__model_nodes nodes = {0};
    CHECK_OK(td_graph_create(&g));
    CHECK_OK(m->build(NULL, g, ROWS, &nodes));
    CHECK_OK(
        td_program_create(g, nodes.loss, &(td_program_opts){.precision = m->precision}, &out.p));
    CHECK_OK(td_params_create(out.p, 1, &out.ps));
    CHECK_OK(td_runner_create(out.p, out.ps, &out.r));
    td_graph_destroy(g);
    return out;
}

static void drop(model *m)
{
    td_runner_destroy(m->r);
    td_params_destroy(m->ps);
    td_program_destroy(m->p);
}

/* ---- Cutting --------------------------------------------------------------------------------- */

/* Is there a param, or the end of all, that begins at `at`? */
static bool param_begins(const td_params *ps, size_t at, size_t dense)
{
    for (int i = 0; i < td_params_count(ps); i++)
        if (td_params_info(ps, i).offset == at)
            return true;
    return at >= dense;
}

static void check_cut(const train_model *m, size_t nbytes)
{
    model n = make(m);
    size_t total, at = 0, dense = 0,
                  most = nbytes / sizeof(float) < 16 ? 16 : (nbytes + 63) / 64 * 16;
    td_runner_grads(n.r, &total);
    td__buckets b;
    CHECK_OK(td__buckets_init(&b, n.ps, NULL, 0, nbytes));
    for (int i = 0; i < td_params_count(n.ps); i++) {
        td_param_info info = td_params_info(n.ps, i);
        if (!info.is_state && !info.sparse)
            dense = info.offset + (info.count + 15) / 16 * 16;
    }
    for (int k = 0; k < b.n; k++) {
        const td__bucket *x = &b.at[k];
        CHECK(x->begin == at && x->count > 0, "%s: bucket %d begins at %zu, not %zu", m->name, k,
              x->begin, at);
        CHECK(x->count <= most, "%s: bucket %d has %zu elements of %zu", m->name, k, x->count,
              most);
        CHECK(x->exact == (x->begin >= dense), "%s: bucket %d: statistics or not", m->name, k);
        at += x->count;
        /* It ends where a param does, or is a piece of one that begins where it does. */
        bool cut = !x->exact && !param_begins(n.ps, at, dense);
        CHECK(!cut || x->count > most / 3, "%s: bucket %d of %zu cuts a param", m->name, k,
              x->count);
    }
    CHECK(at == total, "%s: buckets of %zu elements, not %zu", m->name, at, total);
    CHECK(nbytes < total * sizeof(float) || b.n <= 2 + TD__BUCKET_HALVINGS, "%s: %d buckets",
          m->name, b.n);
    td__buckets_fini(&b);
    drop(&n);
}

TEST(buckets_cover_the_block)
{
    static const size_t NBYTES[] = {1, 64, 100, 777, 4096, 65536, 1 << 28};
    for (int m = 0; m < N_TRAIN_MODELS; m++)
        for (size_t i = 0; i < sizeof NBYTES / sizeof *NBYTES; i++)
            check_cut(&TRAIN_MODELS[m], NBYTES[i]);
}

/* ---- Gradients that are final ---------------------------------------------------------------- */

/* Run r in pieces, each until one more param is final, and copy that much right then; `other`, if
 * there is one, runs between the pieces. */
static void run_in_pieces(const model *n, td_runner *other, float *copy)
{
    td_run_key key = {.seed = 3, .step = 1};
    size_t total, count = 0;
    const float *grads = td_runner_grads(n->r, &total);
    td__runner_begin(n->r, key);
    if (other)
        td__runner_begin(other, (td_run_key){.seed = 4, .step = 1});
    for (int i = 0; i < td_params_count(n->ps); i++) {
        td_param_info info = td_params_info(n->ps, i);
        if (info.is_state || info.sparse)
            continue;
        td__runner_until(n->r, info.offset + info.count);
        memcpy(copy + count, grads + count, (info.offset + info.count - count) * sizeof *grads);
        count = info.offset + info.count;
        if (other)
            td__runner_until(other, count);
    }
    if (other)
        CHECK_OK(td__runner_end(other));
    CHECK_OK(td__runner_end(n->r));
    memcpy(copy + count, grads + count, (total - count) * sizeof *grads);
}

/* What was final did not change any more; in pieces, also with another run between them, the bits
 * are those of a run in one piece. */
TEST(what_is_final_stays)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        model n = make(&TRAIN_MODELS[m]);
        size_t total;
        const float *grads = td_runner_grads(n.r, &total);
        float *copy = check_alloc_guarded(total * sizeof(float) + 1);
        float *block = td__alloc_block(total * sizeof(float) + 1);
        td_runner *other;
        CHECK_OK(td__runner_create_sibling(n.r, &other));
        td__runner_set_grads(other, block);
        for (int k = 0; k < 4; k++) {
            td_runner_set_profile(n.r, k % 2);
            run_in_pieces(&n, k < 2 ? NULL : other, copy);
            CHECK(memcmp(copy, grads, total * sizeof *grads) == 0,
                  "%s: final gradients have changed", TRAIN_MODELS[m].name);
            CHECK_OK(td_runner_run(n.r, (td_run_key){.seed = 3, .step = 1}));
            CHECK(memcmp(copy, grads, total * sizeof *grads) == 0, "%s: other gradients",
                  TRAIN_MODELS[m].name);
        }
        td_runner_destroy(other);
        td__free_block(block, total * sizeof(float) + 1);
        check_free_guarded(copy);
        drop(&n);
    }
}

/* ---- The queue ------------------------------------------------------------------------------- */

enum { JOBS = 40 };

typedef struct jobs {
    int order[JOBS], n, fails; /* fails: this job does; -1: none */
    pthread_t by;
    atomic_int hold; /* job 1 waits until this is set */
} jobs;

static td_status job(void *user, int k)
{
    jobs *j = user;
    j->by = pthread_self();
    j->order[j->n++] = k;
    while (k == 1 && !atomic_load(&j->hold))
        sched_yield();
    return k == j->fails ? TD_FAIL(TD_EIO, "job %d is out of ink", k) : TD_OK;
}

static void *post_odd(void *q)
{
    for (int k = JOBS - 1; k > 0; k -= 2)
        td__bucket_queue_post(q, k);
    return NULL;
}

/* Posted by two threads in reverse, and taken in order. */
TEST(jobs_are_taken_in_order)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        jobs j = {.fails = -1, .hold = 1};
        td__bucket_queue *q;
        CHECK_OK(td__bucket_queue_create(JOBS, threaded, job, &j, &q));
        for (int step = 0; step < 20; step++) {
            pthread_t other;
            j.n = 0;
            td__bucket_queue_begin(q);
            CHECK(pthread_create(&other, NULL, post_odd, q) == 0, "no thread");
            for (int k = JOBS - 2; k >= 0; k -= 2)
                td__bucket_queue_post(q, k);
            pthread_join(other, NULL);
            CHECK_OK(td__bucket_queue_wait(q, 7));
            CHECK_OK(td__bucket_queue_wait(q, JOBS - 1));
            CHECK_OK(td__bucket_queue_wait(q, 0));
            CHECK_EQ_INT(j.n, JOBS);
            bool here = pthread_equal(j.by, pthread_self()) != 0;
            CHECK(here == !threaded, "in the wrong thread");
            const td__bucket_span *s = td__bucket_queue_spans(q);
            for (int k = 0; k < JOBS; k++) {
                CHECK_EQ_INT(j.order[k], k);
                CHECK(s[k].posted_ns && s[k].posted_ns <= s[k].begin_ns &&
                          s[k].begin_ns <= s[k].end_ns && (!k || s[k - 1].end_ns <= s[k].begin_ns),
                      "times of job %d", k);
            }
        }
        td__bucket_queue_destroy(q);
    }
}

TEST(a_job_that_fails_is_the_last)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        jobs j = {.fails = 3, .hold = 1};
        td__bucket_queue *q;
        CHECK_OK(td__bucket_queue_create(JOBS, threaded, job, &j, &q));
        td__bucket_queue_begin(q);
        for (int k = 0; k < JOBS; k++)
            td__bucket_queue_post(q, k);
        CHECK_EQ_INT(td__bucket_queue_wait(q, 10), TD_EIO);
        CHECK(strstr(td_last_error(), "job 3 is out of ink"), "%s", td_last_error());
        CHECK_OK(td__bucket_queue_wait(q, 2));
        CHECK_EQ_INT(td__bucket_queue_wait(q, 3), TD_EIO);
        CHECK_EQ_INT(j.n, 4);
        j.fails = -1;
        j.n = 0;
        td__bucket_queue_begin(q); /* and the next step is a new one */
        for (int k = 0; k < JOBS; k++)
            td__bucket_queue_post(q, k);
        CHECK_OK(td__bucket_queue_wait(q, JOBS - 1));
        td__bucket_queue_destroy(q);
    }
}

static void *release(void *arg)
{
    atomic_store(&((jobs *)arg)->hold, 1);
    return NULL;
}

/* Cancelled while job 1 is under way: it is waited for, and no other begins. */
TEST(a_cancelled_step_ends)
{
    jobs j = {.fails = -1};
    td__bucket_queue *q;
    pthread_t other;
    CHECK_OK(td__bucket_queue_create(JOBS, true, job, &j, &q));
    td__bucket_queue_begin(q);
    for (int k = 0; k < JOBS; k++)
        td__bucket_queue_post(q, k);
    CHECK_OK(td__bucket_queue_wait(q, 0));
    CHECK(pthread_create(&other, NULL, release, &j) == 0, "no thread");
    td__bucket_queue_cancel(q);
    pthread_join(other, NULL);
    CHECK(j.n <= JOBS && td__bucket_queue_wait(q, JOBS - 1) == (j.n == JOBS ? TD_OK : TD_EABORTED),
          "%d jobs", j.n);
    td__bucket_queue_destroy(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_the_block), cmocka_unit_test(what_is_final_stays),
        cmocka_unit_test(jobs_are_taken_in_order), cmocka_unit_test(a_job_that_fails_is_the_last),
        cmocka_unit_test(a_cancelled_step_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
