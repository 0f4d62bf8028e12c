/* schedule.c -- learning-rate schedules: one row of the table each. The formulas are in
 * tandem/optim.h; names and edge cases follow torch.optim.lr_scheduler. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/schedule.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "tandem/optim.h"

/* What a schedule needs of the options. */
enum { NEEDS_TOTAL = 1, NEEDS_STEP_SIZE = 2, NEEDS_MILESTONES = 4, NEEDS_GAMMA = 8 };

typedef struct rule {
    const char *name;
    unsigned needs;
    /* The rate s steps after the warm-up, before plateau's cuts. */
    double (*lr)(const td_schedule_opts *o, int64_t s);
} rule;

struct td_schedule {
    const rule *rule;
    td_schedule_opts opts; /* defaults filled in; milestones point at the copy */
    int64_t *milestones;
    td_schedule_state state;
};

static double constant(const td_schedule_opts *o, int64_t s)
{
    (void)s;
    return o->lr;
}

static double step(const td_schedule_opts *o, int64_t s)
{
    return o->lr * pow(o->gamma, (double)(s / o->step_size));
}

static double multistep(const td_schedule_opts *o, int64_t s)
{
    int passed = 0;

    while (passed < o->n_milestones && o->milestones[passed] <= s)
        passed++;
    return o->lr * pow(o->gamma, passed);
}

static double exponential(const td_schedule_opts *o, int64_t s)
{
    return o->lr * pow(o->gamma, (double)s);
}

/* How far s is through the schedule, 0..1. */
static double progress(const td_schedule_opts *o, int64_t s)
{
    int64_t length = o->total_steps - o->warmup_steps;

    return s >= length ? 1.0 : (double)s / (double)length;
}

static double polynomial(const td_schedule_opts *o, int64_t s)
{
    return o->lr_min + (o->lr - o->lr_min) * pow(1 - progress(o, s), o->power);
}

static double cosine(const td_schedule_opts *o, int64_t s)
{
    return o->lr_min +
           (o->lr - o->lr_min) * 0.5 * (1 + cos(3.14159265358979323846 * progress(o, s)));
}

static const rule RULES[] = {
    {"constant", 0, constant},
    {"step", NEEDS_STEP_SIZE, step},
    {"multistep", NEEDS_MILESTONES, multistep},
    {"exponential", NEEDS_GAMMA, exponential},
    {"polynomial", NEEDS_TOTAL, polynomial},
    {"cosine", NEEDS_TOTAL, cosine},
    {"plateau", 0, constant},
};

static const rule *find(const char *name)
{
    for (int i = 0; i < TD_LEN(RULES); i++)
        if (!strcmp(RULES[i].name, name))
            return &RULES[i];
    return NULL;
}

bool td__schedule_has_end(const char *name)
{
    const rule *r = find(name ? name : RULES[0].name);

    return r && (r->needs & NEEDS_TOTAL);
}

/* Options that are numbers: what they must be when given (non-zero). */
static td_status check_numbers(const td_schedule_opts *o, const char *name)
{
    const struct {
        const char *option;
        double value, lo, hi;
    } LIMITS[] = {
        {"lr", o->lr, 1e-300, 1e30},
        {"warmup_steps", (double)o->warmup_steps, 0, 0x1p62},
        {"warmup_start", o->warmup_start, 0, 1},
        {"total_steps", (double)o->total_steps, 0, 0x1p62},
        {"step_size", (double)o->step_size, 0, 0x1p62},
        {"gamma", o->gamma, 0, 1e30},
        {"power", o->power, 0, 1e30},
        {"lr_min", o->lr_min, 0, 1e30},
        {"patience", o->patience, -1, 0x1p30},
        {"cooldown", o->cooldown, 0, 0x1p30},
        {"threshold", o->threshold, 0, 1},
    };

    for (int i = 0; i < TD_LEN(LIMITS); i++)
        if (!(LIMITS[i].value >= LIMITS[i].lo && LIMITS[i].value <= LIMITS[i].hi))
            return TD_FAIL(TD_EINVAL, "schedule %s: %s is %g, must be in [%g, %g]", name,
                           LIMITS[i].option, LIMITS[i].value, LIMITS[i].lo, LIMITS[i].hi);
    return TD_OK;
}

static td_status check_needs(const td_schedule_opts *o, const rule *r)
{
    if ((r->needs & NEEDS_TOTAL) && o->total_steps <= o->warmup_steps)
        return TD_FAIL(TD_EINVAL,
                       "schedule %s: total_steps is %lld, must be more than warmup_steps, %lld",
                       r->name, (long long)o->total_steps, (long long)o->warmup_steps);
    if ((r->needs & NEEDS_STEP_SIZE) && o->step_size < 1)
        return TD_FAIL(TD_EINVAL, "schedule %s: step_size is %lld, must be at least 1", r->name,
                       (long long)o->step_size);
    if ((r->needs & NEEDS_GAMMA) && o->gamma == 0)
        return TD_FAIL(TD_EINVAL, "schedule %s: gamma is not set", r->name);
    if (o->n_milestones < 0 || (o->n_milestones > 0 && !o->milestones) ||
        ((r->needs & NEEDS_MILESTONES) && o->n_milestones == 0))
        return TD_FAIL(TD_EINVAL, "schedule %s: milestones are not set", r->name);
    for (int i = 1; i < o->n_milestones; i++)
        if (o->milestones[i] <= o->milestones[i - 1])
            return TD_FAIL(TD_EINVAL, "schedule %s: milestone %lld does not come after %lld",
                           r->name, (long long)o->milestones[i], (long long)o->milestones[i - 1]);
    return TD_OK;
}

td_status td_schedule_create(const td_schedule_opts *opts, td_schedule **out)
{
    td_status st = TD_OK;

    *out = NULL;
    if (!opts)
        return TD_FAIL(TD_EINVAL, "td_schedule_create: no options; a schedule needs at least lr");
    td_schedule_opts o = *opts;
    if (!o.name)
        o.name = "constant";
    const rule *r = find(o.name);
    if (!r)
        return TD_FAIL(TD_EINVAL, "no schedule is called '%s'", o.name);
    o.name = r->name;
    TD_TRY(check_numbers(&o, r->name));
    TD_TRY(check_needs(&o, r));
    if (o.gamma == 0)
        o.gamma = 0.1;
    if (o.power == 0)
        o.power = 1;
    if (o.patience == 0)
        o.patience = 10;
    else if (o.patience < 0)
        o.patience = 0;
    if (o.threshold == 0)
        o.threshold = 1e-4;
    if (o.warmup_start == 0 && !signbit(o.warmup_start) && o.warmup_steps > 0)
        o.warmup_start = 1.0 / (double)o.warmup_steps;

    td_schedule *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "schedule: out of memory");
    s->rule = r;
    s->state.factor = 1;
    if (o.n_milestones > 0) {
        s->milestones = td__calloc((size_t)o.n_milestones, sizeof *s->milestones);
        if (!s->milestones) {
            st = TD_FAIL(TD_ENOMEM, "schedule: out of memory");
            goto fail;
        }
        memcpy(s->milestones, o.milestones, (size_t)o.n_milestones * sizeof *s->milestones);
        o.milestones = s->milestones;
    }
    s->opts = o;
    *out = s;
    return TD_OK;
fail:
    td_schedule_destroy(s);
    return st;
}

void td_schedule_destroy(td_schedule *s)
{
    if (!s)
        return;
    td__free(s->milestones);
    td__free(s);
}

double td_schedule_lr(const td_schedule *s, int64_t at)
{
    const td_schedule_opts *o = &s->opts;

    if (at < o->warmup_steps) {
        double share = (double)at / (double)o->warmup_steps;
        return o->lr * (o->warmup_start + (1 - o->warmup_start) * share);
    }
    double lr = s->rule->lr(o, at - o->warmup_steps) * s->state.factor;
    /* Plateau's cuts stop at lr_min; the others never go below it by themselves. */
    return s->state.factor < 1 && lr < o->lr_min ? o->lr_min : lr;
}

static bool better(const td_schedule *s, double metric)
{
    const td_schedule_opts *o = &s->opts;

    if (!s->state.started)
        return true;
    return o->maximize ? metric > s->state.best * (1 + o->threshold)
                       : metric < s->state.best * (1 - o->threshold);
}

td_status td_schedule_metric(td_schedule *s, double metric)
{
    td_schedule_state *p = &s->state;

    if (isnan(metric))
        return TD_FAIL(TD_EINVAL, "schedule %s: the metric is nan", s->rule->name);
    if (strcmp(s->rule->name, "plateau") != 0)
        return TD_OK;
    if (better(s, metric)) {
        p->best = metric;
        p->bad = 0;
        p->started = true;
    } else {
        p->bad++;
    }
    if (p->cooldown > 0) {
        p->cooldown--;
        p->bad = 0;
    }
    if (p->bad > s->opts.patience) {
        p->factor *= s->opts.gamma;
        p->cooldown = s->opts.cooldown;
        p->bad = 0;
    }
    return TD_OK;
}

td_schedule_state td_schedule_get_state(const td_schedule *s)
{
    return s->state;
}

void td_schedule_set_state(td_schedule *s, td_schedule_state state)
{
    s->state = state;
}

const char *td_schedule_list(int i)
{
    return i >= 0 && i < TD_LEN(RULES) ? RULES[i].name : NULL;
}
