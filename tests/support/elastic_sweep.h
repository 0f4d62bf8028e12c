/* elastic_sweep.h -- elastic ranks that have parts of a model, in any arrangement, of which some
 * die at every communication call, or which grow and shrink: what tests of stages and of pieces of
 * layers share. Every run ends with the weights of a quiet one on one rank, which make_quiet() has
 * made, and without the disk: no line says that the run goes back. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_ELASTIC_SWEEP_H
#define TD_TESTS_ELASTIC_SWEEP_H

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"
#include "support/elastic_world.h"
#include "support/full.h"
#include "support/sanitized.h"
#include "tandem/log.h"
#include "tandem/ops.h"
#include "tandem/tandem.h"

enum { STEPS = 3, SOME = SANITIZED ? 41 : 11 }; /* one call of so many is met, in samples */

/* user: is there a row-sparse table? */
static inline td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 2));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_relu(g, td_nn_linear(g, "one", x, 32, NULL));
    h = td_nn_dropout(g, td_nn_batch_norm(g, "norm", h, NULL), 0.1);
    h = td_relu(g, td_nn_linear(g, "two", h, 48, NULL));
    h = td_nn_batch_norm(g, "late", td_relu(g, td_nn_linear(g, "three", h, 32, NULL)), NULL);
    if (*(const bool *)user)
        h = td_add(g, h,
                   td_nn_embedding(g, "table", y, 7, 32, &(td_nn_embedding_opts){.sparse = true}));
    td_node *logits = td_nn_linear(g, "four", h, 3, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static bool table = true, no_table = false;
static const td__model MODEL = {.build = build, .user = &no_table};
static const td__model WITH_TABLE = {.build = build, .user = &table};

/* How ranks are arranged, of how many. */
typedef struct arrangement {
    const char *name;
    td__rank_mesh mesh;
    int zero;
    int size;
} arrangement;

#define MESH(data, pipeline, tensor) \
    {                                \
        {                            \
            data, pipeline, tensor   \
        }                            \
    }
static inline elastic_plan new_plan(const arrangement *a)
{
    elastic_plan p = {.model = &MODEL, .size = a ? a->size : 1};
    td__data_opts o = {.source = "spirals",
                       .source_opts = {.count = 42, .seed = 4},
                       .valid_fraction = 0.1,
                       .seed = 4};
    CHECK_OK(td__data_open(&o, &p.data));
    p.opts = (td__train_opts){.batch = 12,
                              .steps = STEPS,
                              .threads = 1,
                              .micro_batches = 4,
                              .valid_every = 2,
                              .eval_batch = 6,
                              .prefetch = -1,
                              .seed = 7,
                              .job_digest = "ab",
                              .sync.tensor_pieces = 2,
                              .optim = {.name = "adam", .lr = 0.02, .clip_norm = 0.7}};
    if (a) {
        p.opts.sync.mesh = a->mesh;
        p.opts.sync.zero = a->zero;
    }
    return p;
}

static elastic_end quiet;
static atomic_int back; /* lines that say that the run goes back */

static inline void count_lines(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)level;
    (void)part;
    if (strstr(line, "the run goes back to step") || strstr(line, "it goes back to step"))
        atomic_fetch_add(&back, 1);
}

/* Without checkpoints: what is not in memory is lost. */
static inline void run(elastic_plan *plan, const arrangement *a, elastic_end *end)
{
    const char *what = plan->faults ? plan->faults : "no faults";
    atomic_store(&back, 0);
    elastic_run(plan, end);
    CHECK(!end->failure, "%s, %s: %s", a->name, what, end->text);
    CHECK(end->finished > 0, "%s, %s: nobody finished", a->name, what);
    CHECK(strcmp(end->result.digest, quiet.result.digest) == 0, "%s, %s: other weights", a->name,
          what);
    CHECK(end->result.best == quiet.result.best &&
              end->result.train_loss == quiet.result.train_loss,
          "%s, %s: best %a, loss %a", a->name, what, end->result.best, end->result.train_loss);
    CHECK(atomic_load(&back) == 0, "%s, %s: the run went back", a->name, what);
    td__data_close(plan->data);
}

static inline int make_quiet(void **state)
{
    elastic_plan plan = new_plan(NULL);
    (void)state;
    elastic_run(&plan, &quiet);
    CHECK(quiet.finished == 1 && isfinite(quiet.result.best), "%s", quiet.text);
    td__data_close(plan.data);
    td_log_set_sink(count_lines, NULL);
    return 0;
}

/* A kill at every call of a step or generation (or at some), with and without a new process in its
 * place, which may become rank 0. Returns how many calls there were. */
static inline int sweep(const arrangement *a, const char *where, int number, int rank, int every)
{
    for (int k = 1 + (rank + number) % every;; k += every) {
        elastic_plan plan = new_plan(a);
        elastic_end end;
        char faults[128];
        snprintf(faults, sizeof faults, "kill rank=%d at=%s:%d:comm:%d", rank, where, number, k);
        plan.faults = faults;
        plan.replace = k / every % 2;
        plan.newest_first = k / every / 2 % 2;
        run(&plan, a, &end);
        CHECK(end.died <= 1, "%d died", end.died);
        if (!end.died)
            return k - 1;
        CHECK_EQ_INT(end.finished, plan.replace ? a->size : a->size - 1);
    }
}

/* All ranks at all calls, or a sample. */
static inline void sweep_steps(const arrangement *a, int n)
{
    for (int i = 0; i < n; i++)
        for (int rank = 0; rank < a[i].size; rank++)
            for (int step = 1; step <= STEPS; step++) {
                if (!full_or_sampled(i + rank + step, STEPS))
                    continue;
                int calls = sweep(&a[i], "step", step, rank, full_test() ? 1 : SOME);
                CHECK(calls >= 5, "%s: only %d calls in step %d", a[i].name, calls, step);
            }
}

/* While the world changes: before or after state was moved. */
static inline void sweep_generations(const arrangement *a, int n)
{
    for (int i = 0; i < n; i++)
        for (int rank = 0; rank < a[i].size; rank++)
            CHECK(sweep(&a[i], "generation", 1, rank, full_test() ? 1 : SOME + 2) >= 2,
                  "%s: nothing happened", a[i].name);
}

/* One after the other, down to one rank. */
static inline void lose_all_but_one(const arrangement *a)
{
    static const char *const FAULTS[] = {
        "kill rank=0 at=step:1:comm:3; kill rank=0 at=step:2:comm:5; kill rank=1 at=step:3:comm:7",
        "kill rank=3 at=step:1; kill rank=2 at=step:2:comm:2; kill rank=0 at=step:3:barrier"};
    for (size_t i = 0; i < TD_LEN(FAULTS); i++) {
        elastic_plan plan = new_plan(a);
        elastic_end end;
        plan.faults = FAULTS[i];
        run(&plan, a, &end);
        CHECK_EQ_INT(end.died, a->size - 1);
        CHECK_EQ_INT(end.finished, 1);
    }
}

/* Numbers of ranks for which the job's arrangement does not fit, one alone, and back. */
static inline void grow_and_shrink(const arrangement *a)
{
    static const int SIZES[][3] = {{3, 1, 4}, {4, 3, 2}, {1, 5, 3}};
    for (size_t i = 0; i < TD_LEN(SIZES); i++) {
        elastic_plan plan = new_plan(a);
        elastic_end end;
        for (int k = 0; k < STEPS - 1; k++) {
            plan.change[k].step = (uint64_t)(1 + k);
            plan.change[k].size = SIZES[i][k];
        }
        plan.newest_first = i % 2;
        run(&plan, a, &end);
        CHECK_EQ_INT(end.finished, SIZES[i][STEPS - 2]);
    }
}

static inline void change_world(const arrangement *a, int n)
{
    for (int i = 0; i < n; i++) {
        if (a[i].size == 4)
            lose_all_but_one(&a[i]);
        grow_and_shrink(&a[i]);
        elastic_plan plan = new_plan(&a[i]);
        elastic_end end;
        plan.stop_one_after = 2;
        run(&plan, &a[i], &end);
        CHECK_EQ_INT(end.drained, 1);
    }
}

#endif
