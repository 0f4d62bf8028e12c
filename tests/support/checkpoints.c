/* checkpoints.c -- see checkpoints.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/checkpoints.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "support/check.h"

saved_model saved_model_create(void)
{
    saved_model s = {.m = optim_model_create()};
    CHECK_OK(td_optimizer_create(&(td_optim_opts){.name = "adam"}, s.m.params, &s.o));
    return s;
}

void saved_model_destroy(saved_model *s)
{
    td_optimizer_destroy(s->o);
    optim_model_destroy(&s->m);
}

/* Number i of block k at that step. */
static float number(uint64_t step, int variant, int k, size_t i)
{
    td__rng_key key = {.seed = step, .stream = (uint32_t)(10 * variant + k)};
    return td__rng_normal(&key, i);
}

/* The blocks: params first, then the optimizer's states. */
static float *block(saved_model *s, int k, size_t *count)
{
    if (k > 0)
        return td_optimizer_state(s->o, k - 1, count);
    return td_params_block(s->m.params, count);
}

td__train_state saved_model_at(saved_model *s, uint64_t step, int variant)
{
    for (int k = 0; k <= td_optimizer_state_count(s->o); k++)
        for (int p = 0; p < td_params_count(s->m.params); p++) {
            size_t count;
            td_param_info info = td_params_info(s->m.params, p);
            float *at = block(s, k, &count) + info.offset;
            for (size_t i = 0; i < info.count; i++)
                at[i] = number(step, variant, k, info.offset + i);
        }
    td_optimizer_set_steps(s->o, step + 1);
    td__train_state t = {
        .step = step,
        .epoch = step / 7,
        .batch_in_epoch = (int64_t)step % 7,
        .batch = 64,
        .seed = UINT64_MAX - step,
        .samples = step * 64,
        .schedule =
            {.factor = 0.1, .best = (double)INFINITY, .bad = 2, .cooldown = 1, .started = true},
        .best = variant ? (double)NAN : 0.625, /* its text has no digit that does not count */
        .best_step = step - 1,
        .valid_step = step - 2,
        .bad_validations = 3,
        .job_digest = "0123",
    };
    return t;
}

static bool same_number(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

static bool same_state(const td__train_state *a, const td__train_state *b)
{
    return a->step == b->step && a->epoch == b->epoch && a->batch_in_epoch == b->batch_in_epoch &&
           a->batch == b->batch && a->seed == b->seed && a->samples == b->samples &&
           a->best_step == b->best_step && a->valid_step == b->valid_step &&
           a->bad_validations == b->bad_validations && same_number(a->best, b->best) &&
           same_number(a->schedule.factor, b->schedule.factor) &&
           same_number(a->schedule.best, b->schedule.best) && a->schedule.bad == b->schedule.bad &&
           a->schedule.cooldown == b->schedule.cooldown &&
           a->schedule.started == b->schedule.started && strcmp(a->job_digest, b->job_digest) == 0;
}

bool saved_model_is(saved_model *s, const td__train_state *state, uint64_t step, int variant)
{
    saved_model other = saved_model_create();
    td__train_state want = saved_model_at(&other, step, variant);
    bool same = same_state(state, &want) && td_optimizer_steps(s->o) == step + 1;
    char have[65], digest[65];

    CHECK_OK(td_params_digest(s->m.params, have));
    CHECK_OK(td_params_digest(other.m.params, digest));
    same = same && strcmp(have, digest) == 0 && strcmp(state->digest, digest) == 0;
    for (int k = 0; k <= td_optimizer_state_count(s->o) && same; k++)
        for (int p = 0; p < td_params_count(s->m.params); p++) {
            size_t count;
            td_param_info info = td_params_info(s->m.params, p);
            const float *a = block(s, k, &count) + info.offset;
            const float *b = block(&other, k, &count) + info.offset;
            same = same && memcmp(a, b, info.count * sizeof *a) == 0;
        }
    saved_model_destroy(&other);
    return same;
}

td_status save_checkpoint(const char *dir, int keep, uint64_t step, int variant, bool best)
{
    td__checkpointer *c;
    td_status st = td__checkpointer_create(dir, keep, &c);
    if (st)
        return st;
    saved_model s = saved_model_create();
    td__train_state state = saved_model_at(&s, step, variant);
    st = td__checkpointer_save(c, &state, s.m.params, s.o, best);
    if (!st)
        st = td__checkpointer_wait(c);
    td__checkpointer_destroy(c);
    saved_model_destroy(&s);
    return st;
}

uint64_t load_checkpoint(const char *dir, int variants, int *variant)
{
    td__checkpoint_info info;
    saved_model s = saved_model_create();
    CHECK_OK(td__checkpoint_find(dir, NULL, &info));
    CHECK_OK(td__checkpoint_load(&info, s.m.params, s.o));
    int v = 0;
    while (v < variants && !saved_model_is(&s, &info.state, info.state.step, v))
        v++;
    CHECK(v < variants, "%s holds other numbers than were saved", info.path);
    if (variant)
        *variant = v;
    saved_model_destroy(&s);
    return info.state.step;
}
