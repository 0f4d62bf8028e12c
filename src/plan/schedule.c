/* schedule.c -- schedules as lists, and the list of schedules. See schedule.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/text.h"
#include "plan/schedule_write.h"

static const td__schedule_def *const SCHEDULES[] = {
#define TD_SCHEDULE(id) &td__schedule_##id,
#include "plan/schedules.def"
#undef TD_SCHEDULE
    NULL};

const td__schedule_def *td__schedule_at(int i)
{
    return SCHEDULES[i];
}

const char *td__schedule_word(int i)
{
    return SCHEDULES[i] ? SCHEDULES[i]->name : NULL;
}

td_status td__schedule_find(const char *name, const td__schedule_def **out)
{
    td__text names = {0};
    for (int i = 0; SCHEDULES[i]; i++) {
        if (!strcmp(SCHEDULES[i]->name, name)) {
            *out = SCHEDULES[i];
            td__text_fini(&names);
            return TD_OK;
        }
        td__text_printf(&names, "%s%s", i ? ", " : "", SCHEDULES[i]->name);
    }
    td_status st = TD_FAIL(TD_EINVAL, "no pipeline schedule is called %s; there are %s", name,
                           names.data ? names.data : "others");
    td__text_fini(&names);
    return st;
}

int td__schedule_stage(const td__schedule_def *d, int stages, int chunk)
{
    int at = chunk % stages;
    return d->v_shaped && chunk / stages % 2 ? stages - 1 - at : at;
}

static td_status check_case(const td__schedule_def *d, const td__schedule_case *c)
{
    int each = c->chunks / c->stages;
    if (c->micro_batches < 1 || c->stages < 1 || c->chunks % c->stages || !each)
        return TD_FAIL(TD_EINVAL, "%d chunks on %d stages with %d micro-batches is no pipeline",
                       c->chunks, c->stages, c->micro_batches);
    if (d->per_stage ? each != d->per_stage : each < 2)
        return TD_FAIL(TD_EINVAL, "the schedule %s has %s%d chunk%s per stage, not %d", d->name,
                       d->per_stage ? "" : "at least ", d->per_stage ? d->per_stage : 2,
                       d->per_stage == 1 ? "" : "s", each);
    return TD_OK;
}

static size_t runs_of_stage(const td__schedule_case *c)
{
    return (size_t)c->chunks / (size_t)c->stages * (size_t)c->micro_batches * 3;
}

td_status td__schedule_blank(const td__schedule_case *c, td__schedule **out)
{
    td__schedule *s = *out = td__calloc(1, sizeof *s);
    bool ok = s;
    if (s) {
        s->of = *c;
        s->runs = td__calloc((size_t)c->stages, sizeof *s->runs);
        s->n = td__calloc((size_t)c->stages, sizeof *s->n);
        ok = s->runs && s->n;
    }
    for (int i = 0; ok && i < c->stages; i++)
        ok = (s->runs[i] = td__calloc(runs_of_stage(c), sizeof **s->runs)) != NULL;
    if (ok)
        return TD_OK;
    td__schedule_destroy(s);
    return TD_FAIL(TD_ENOMEM, "no memory for a pipeline schedule");
}

void td__schedule_swap(td__schedule *a, td__schedule *b)
{
    td__schedule was = *a;
    *a = *b;
    *b = was;
}

td_status td__schedule_create(const td__schedule_def *d, const td__schedule_case *c,
                              td__schedule **out)
{
    td__schedule *s;
    TD_TRY(check_case(d, c));
    TD_TRY(td__schedule_blank(c, &s));
    td_status st = d->write(s);
    for (int i = 0; !st && i < c->stages; i++)
        TD_ASSERT((size_t)s->n[i] == runs_of_stage(c), "%s: stage %d has %d of %zu runs", d->name,
                  i, s->n[i], runs_of_stage(c));
    if (st)
        td__schedule_destroy(s);
    else
        *out = s;
    return st;
}

void td__schedule_destroy(td__schedule *s)
{
    if (!s)
        return;
    for (int i = 0; s->runs && i < s->of.stages; i++)
        td__free(s->runs[i]);
    td__free(s->runs);
    td__free(s->n);
    td__free(s);
}

int td__schedule_in_flight(const td__schedule *s, int chunk)
{
    int now = 0, most = 0;
    for (int i = 0; i < s->of.stages; i++)
        for (int k = 0; k < s->n[i]; k++)
            if (s->runs[i][k].chunk == chunk) {
                now += s->runs[i][k].phase == TD_RUN_FORWARD;
                most = now > most ? now : most;
                now -= s->runs[i][k].phase == TD_RUN_WEIGHT;
            }
    return most;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Runs of this kind that the stage's list has. Lists are short, and written once. */
static int written(const td__schedule *s, int stage, int chunk, td_run_phase phase)
{
    for (int k = s->n[stage]; k-- > 0;)
        if (s->runs[stage][k].chunk == chunk && s->runs[stage][k].phase == phase)
            return (int)s->runs[stage][k].micro_batch + 1;
    return 0;
}

void td__write_phase(td__schedule *s, int stage, int chunk, td_run_phase phase)
{
    int next = written(s, stage, chunk, phase);
    if (next < s->of.micro_batches)
        s->runs[stage][s->n[stage]++] = (td__schedule_run){
            .chunk = (uint16_t)chunk, .phase = (uint8_t)phase, .micro_batch = (uint32_t)next};
}

void td__write_forward(td__schedule *s, int stage, int chunk)
{
    td__write_phase(s, stage, chunk, TD_RUN_FORWARD);
}

void td__write_backward(td__schedule *s, int stage, int chunk)
{
    td__write_phase(s, stage, chunk, TD_RUN_BACKWARD);
    td__write_phase(s, stage, chunk, TD_RUN_WEIGHT);
}

bool td__write_done(const td__schedule *s, int chunk, td_run_phase phase)
{
    for (int i = 0; i < s->of.stages; i++)
        if (written(s, i, chunk, phase) == s->of.micro_batches)
            return true;
    return false;
}
