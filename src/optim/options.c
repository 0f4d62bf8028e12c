/* options.c -- the optimizers' options: defaults, ranges, and who takes which.
 *
 * One table, made from TD_OPTIM_OPTION_MAP, says where each option lies in td_optim_opts and what
 * values it may have; each optimizer's own table says which it takes and their defaults. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/options.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

static const td__optim_def *const DEFS[] = {
#define TD_OPTIM(name) &td__optim_##name,
#include "optim/optim.def"
#undef TD_OPTIM
};

typedef struct option {
    const char *name;
    size_t offset; /* of a double in td_optim_opts */
    double lo, hi;
    bool hi_allowed;
} option;

static const option OPTIONS[] = {
#define X(field, lo, hi, hi_allowed) {#field, offsetof(td_optim_opts, field), lo, hi, hi_allowed},
    TD_OPTIM_OPTION_MAP(X)
#undef X
};

static const td__optim_option COMMON[] = {{"clip_norm", 0}, {"clip_value", 0}};

static const td__optim_def *find(const char *name)
{
    for (int i = 0; i < TD_LEN(DEFS); i++)
        if (!strcmp(DEFS[i]->name, name))
            return DEFS[i];
    return NULL;
}

/* The optimizer's entry for an option, NULL if it has none. */
static const td__optim_option *entry(const td__optim_def *def, const char *name)
{
    for (int i = 0; i < def->n_options; i++)
        if (!strcmp(def->options[i].name, name))
            return &def->options[i];
    for (int i = 0; i < TD_LEN(COMMON); i++)
        if (!strcmp(COMMON[i].name, name))
            return &COMMON[i];
    return NULL;
}

/* *value: as given before, as meant after. */
static td_status resolve_one(const td__optim_def *def, const option *opt, double *value)
{
    const td__optim_option *e = entry(def, opt->name);
    double v = *value;

    if (v == 0) {
        *value = e && !signbit(v) ? e->value : 0;
        return TD_OK;
    }
    if (!e)
        return TD_FAIL(TD_EINVAL, "%s: has no option %s (given %g)", def->name, opt->name, v);
    if (!(v >= opt->lo && (opt->hi_allowed ? v <= opt->hi : v < opt->hi)))
        return TD_FAIL(TD_EINVAL, "%s: %s is %g, must be in [%g, %g%c", def->name, opt->name, v,
                       opt->lo, opt->hi, opt->hi_allowed ? ']' : ')');
    return TD_OK;
}

td_status td__optim_resolve(const td_optim_opts *given, const td__optim_def **def,
                            td_optim_opts *out)
{
    td_optim_opts zero = {.name = NULL};

    *out = given ? *given : zero;
    if (!out->name)
        out->name = "sgd";
    const td__optim_def *d = find(out->name);
    if (!d)
        return TD_FAIL(TD_EINVAL, "no optimizer is called '%s'", out->name);
    out->name = d->name;
    for (int i = 0; i < TD_LEN(OPTIONS); i++)
        TD_TRY(resolve_one(d, &OPTIONS[i], (double *)((char *)out + OPTIONS[i].offset)));
    if (out->nesterov && !d->has_nesterov)
        return TD_FAIL(TD_EINVAL, "%s: has no option nesterov (given true)", d->name);
    if (out->centered && !d->has_centered)
        return TD_FAIL(TD_EINVAL, "%s: has no option centered (given true)", d->name);
    if (d->check)
        TD_TRY(d->check(out));
    *def = d;
    return TD_OK;
}

const char *td_optimizer_list(int i)
{
    return i >= 0 && i < TD_LEN(DEFS) ? DEFS[i]->name : NULL;
}

bool td_optimizer_has_option(const char *optimizer, const char *name)
{
    const td__optim_def *def = find(optimizer);

    if (!def)
        return false;
    if (!strcmp(name, "nesterov"))
        return def->has_nesterov;
    if (!strcmp(name, "centered"))
        return def->has_centered;
    return !strcmp(name, "no_decay_vectors") || entry(def, name) != NULL;
}
