/* step_rig.c -- see step_rig.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/step_rig.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "support/check.h"

enum { BATCH = 12, SAMPLES = 40 }; /* three full batches and one of four */

static td_status make_optimizer(const step_case *c, td_comm *comm, step_rig *rig)
{
    td_optim_opts o = {.name = c->optimizer ? c->optimizer : c->m->optimizer,
                       .lr = 0.05,
                       .clip_norm = c->clip_norm};

    if (strcmp(o.name, "sgd") == 0 && strcmp(c->m->name, "words") != 0)
        o.momentum = 0.9; /* not with row-sparse gradients */
    if (!c->stage || !comm || td_comm_size(comm) == 1)
        return td_optimizer_create(&o, rig->ps, &rig->o);
    td__sync_hold h = {.config = &rig->config,
                       .comm = comm,
                       .elastic = c->mirrors,
                       .params = rig->ps,
                       .micro_batches = c->micro_batches,
                       .accumulate = c->accumulate};
    TD_TRY(td__sync_hold_shards(&h, &rig->shards));
    td_status st = td__holding_optimizer(&o, rig->ps, td__shards_holding(rig->shards),
                                         &(td__worlds){.nbytes = c->bucket_nbytes}, &rig->o);
    if (c->stage == 3)
        td__shards_drop_all(rig->shards);
    return st;
}

td_status step_rig_make(const step_case *c, td_comm *comm, step_rig *rig)
{
    int64_t rows = (BATCH + c->micro_batches - 1) / c->micro_batches;
    const td_program *program;
    td__loader_opts l = {.batch = BATCH, .shuffle = true, .seed = 9, .prefetch = -1};
    td__micro_batch_set_opts so = {.model = {.build = c->m->build},
                                   .use = TD__USE_TRAIN,
                                   .precision = c->m->precision,
                                   .seed = 9};
    rig->data = train_model_data(c->m, SAMPLES, 3);
    TD_TRY(td__loader_create(rig->data, &l, &rig->loader));
    TD_TRY(td__pool_create(c->threads ? c->threads : 1, &rig->pool));
    so.pool = rig->pool;
    TD_TRY(td__micro_batch_set_create(&so, &rig->set));
    TD_TRY(td__micro_batch_program(rig->set, rows, &program, NULL));
    TD_TRY(td_params_create(program, 9, &rig->ps));
    td__micro_batch_set_params(rig->set, rig->ps);
    TD_TRY(td__micro_batch_set_dataset(rig->set, rig->data, rows));
    rig->config = (td__sync_config){.zero = c->stage,
                                    .bucket_nbytes = c->bucket_nbytes,
                                    .in_flight = c->in_flight,
                                    .update_late = c->late,
                                    .compressor = c->compressor};
    TD_TRY(make_optimizer(c, comm, rig));
    td__sync_ctx x = {.config = &rig->config,
                      .comm = comm,
                      .shards = rig->shards,
                      .batch = BATCH,
                      .samples = SAMPLES,
                      .step = {.set = rig->set,
                               .pool = rig->pool,
                               .params = rig->ps,
                               .optimizer = rig->o,
                               .program = program,
                               .micro_batches = c->micro_batches,
                               .accumulate = c->accumulate}};
    return td__sync_create(&x, &rig->sync);
}

void step_rig_drop(step_rig *rig)
{
    td__sync_destroy(rig->sync);
    td_optimizer_destroy(rig->o);
    td__shards_destroy(rig->shards);
    td__micro_batch_set_destroy(rig->set);
    td_params_destroy(rig->ps);
    td__pool_destroy(rig->pool);
    td__loader_destroy(rig->loader);
    td__dataset_destroy(rig->data);
}

static void spoil(td_params *ps)
{
    size_t count;
    td_params_block(ps, &count)[0] = NAN;
    td_params_touch(ps);
}

td_status step_rig_run(const step_case *c, int rank, step_rig *rig, double *losses)
{
    int64_t batches = td__loader_batches(rig->loader);
    uint32_t step = 0;
    *losses = 0;
    for (int epoch = 0; epoch < 2; epoch++)
        for (int64_t k = 0; k < batches; k += c->accumulate) {
            int64_t end = k + c->accumulate < batches ? k + c->accumulate : batches;
            int64_t stop = end * BATCH < SAMPLES ? end * BATCH : SAMPLES;
            td__step_result r;
            if (++step == c->bad_step && rank == c->bad_rank)
                spoil(rig->ps);
            td__sync_place at = {.step = step, .epoch = (uint64_t)epoch, .batch = k};
            TD_TRY(td__sync_begin(rig->sync, &at, (int)(end - k), stop - k * BATCH));
            for (int64_t b = k; b < end; b++) {
                const td__batch *batch;
                td__loader_seek(rig->loader, (uint64_t)epoch, b);
                TD_TRY(td__loader_next(rig->loader, &batch));
                TD_TRY(td__sync_batch(rig->sync, batch));
            }
            TD_TRY(td__sync_end(rig->sync, 0.05, (td__step_say){0}, &r));
            TD_TRY(td__sync_gather(rig->sync, &r.times));
            *losses = *losses * 3 + r.loss;
        }
    return TD_OK;
}

void step_case_expect(step_case *c)
{
    step_rig rig = {0};
    CHECK_OK(step_rig_make(c, NULL, &rig));
    CHECK_OK(step_rig_run(c, 0, &rig, &c->loss));
    CHECK_OK(td_params_digest(rig.ps, c->digest));
    step_rig_drop(&rig);
}

void step_case_body(ranks_ctx *r)
{
    const step_case *c = r->arg;
    step_rig rig = {0};
    char digest[65] = "";
    double loss = 0;
    td_status st = step_rig_make(c, r->comm, &rig);
    if (!st)
        st = step_rig_run(c, r->rank, &rig, &loss);
    if (!st && rig.shards && c->stage == 3)
        st = td__shards_gather_all(rig.shards);
    if (!st)
        st = td_params_digest(rig.ps, digest);
    step_rig_drop(&rig);
    RANK_OK(r, st);
    RANK_CHECK(r, strcmp(digest, c->digest) == 0,
               "%s, stage %d, %d micro-batches x %d: other weights", c->m->name, c->stage,
               c->micro_batches, c->accumulate);
    RANK_CHECK(r, loss == c->loss, "%s, stage %d, %d micro-batches x %d: loss %a, not %a",
               c->m->name, c->stage, c->micro_batches, c->accumulate, loss, c->loss);
}
