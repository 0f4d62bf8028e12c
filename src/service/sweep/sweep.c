/* sweep.c -- see sweep.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/sweep/sweep.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/rng.h"
#include "job/keys.h"
#include "service/json_tree.h"

enum { MOST_TRIALS = 10000 };

const td__key td__sweep_keys[] = {
#define TD_TO(path) TD_OPTION(td__sweep, path)
#define TD_KEY(...) TD_KEY_ROW(__VA_ARGS__),
#include "service/sweep/sweep.def"
#undef TD_KEY
#undef TD_TO
    TD_KEYS_END};

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "sweep: out of memory");
}

/* ---- reading a plan ---- */

static td_status read_choices(td__sweep *s, const td__tree *list, td__sweep_dim *d)
{
    const char **choices = td__arena_alloc(s->arena, (size_t)list->count * sizeof *choices + 1);
    if (!choices)
        return out_of_memory();
    if (!list->count)
        return TD_FAIL(TD_EINVAL, "%s: space.%s: expected at least one value",
                       td__tree_where(list).text, d->name);
    for (const td__tree *t = list->first; t; t = t->next) {
        if (t->kind != TD_TREE_SCALAR || strlen(t->text) >= TD__SWEEP_VALUE)
            return TD_FAIL(TD_EINVAL, "%s: space.%s: expected a value, found %s",
                           td__tree_where(t).text, d->name, td__tree_found(t).text);
        choices[d->n_choices++] = t->text;
    }
    d->kind = TD_SWEEP_CHOICE;
    d->choices = choices;
    return TD_OK;
}

static bool read_real(const td__tree *t, double *out)
{
    char *end;
    if (!t || t->kind != TD_TREE_SCALAR || !*t->text)
        return false;
    *out = strtod(t->text, &end);
    return *end == 0 && isfinite(*out);
}

static td_status read_range(const td__tree *map, td__sweep_dim *d)
{
    static const char *const KINDS[] = {
        [TD_SWEEP_UNIFORM] = "uniform", [TD_SWEEP_LOG] = "log", [TD_SWEEP_INT] = "int"};
    const td__tree *range = map->first;
    d->kind = TD_SWEEP_CHOICE;
    for (int k = TD_SWEEP_UNIFORM; k <= TD_SWEEP_INT; k++)
        if (map->count == 1 && strcmp(range->key, KINDS[k]) == 0)
            d->kind = (td__sweep_kind)k;
    if (d->kind == TD_SWEEP_CHOICE)
        return TD_FAIL(TD_EINVAL,
                       "%s: space.%s: expected a list of values, {uniform: [LO, HI]}, "
                       "{log: [LO, HI]} or {int: [LO, HI]}",
                       td__tree_where(map).text, d->name);
    if (range->kind != TD_TREE_LIST || range->count != 2 ||
        !read_real(td__tree_at(range, 0), &d->lo) || !read_real(td__tree_at(range, 1), &d->hi) ||
        !(d->lo < d->hi) || (d->kind == TD_SWEEP_LOG && d->lo <= 0) ||
        (d->kind == TD_SWEEP_INT &&
         (d->lo != floor(d->lo) || d->hi != floor(d->hi) || d->hi - d->lo > 1e15)))
        return TD_FAIL(TD_EINVAL, "%s: space.%s.%s: expected [LO, HI], %s with LO < HI%s",
                       td__tree_where(range).text, d->name, KINDS[d->kind],
                       d->kind == TD_SWEEP_INT ? "whole numbers" : "numbers",
                       d->kind == TD_SWEEP_LOG ? ", both above 0" : "");
    return TD_OK;
}

static td_status read_space(td__sweep *s, const td__tree *given, const td__tree *space)
{
    int64_t combinations = 1;
    if (!space || space->kind != TD_TREE_MAP || !space->count)
        return TD_FAIL(TD_EINVAL, "%s: space: expected a map of what varies",
                       td__tree_where(space ? space : given).text);
    td__sweep_dim *dims = td__arena_alloc(s->arena, (size_t)space->count * sizeof *dims);
    if (!dims)
        return out_of_memory();
    s->dims = dims;
    for (const td__tree *t = space->first; t; t = t->next) {
        td__sweep_dim *d = &dims[s->n_dims++];
        d->name = t->key;
        if (t->kind == TD_TREE_LIST)
            TD_TRY(read_choices(s, t, d));
        else if (t->kind == TD_TREE_MAP)
            TD_TRY(read_range(t, d));
        else
            return TD_FAIL(TD_EINVAL, "%s: space.%s: expected a list of values or a range",
                           td__tree_where(t).text, d->name);
        if (strcmp(s->search, "grid") != 0)
            continue;
        if (d->kind != TD_SWEEP_CHOICE)
            return TD_FAIL(TD_EINVAL, "%s: space.%s: a grid needs a list of values",
                           td__tree_where(t).text, d->name);
        combinations *= d->n_choices;
        if (combinations > MOST_TRIALS)
            return TD_FAIL(TD_EINVAL,
                           "%s: space: more than %d combinations; search: random tries "
                           "some of them",
                           td__tree_where(space).text, MOST_TRIALS);
    }
    if (strcmp(s->search, "grid") == 0)
        s->trials = combinations;
    return TD_OK;
}

/* The spec as text of its own, which every trial reads anew. */
static td_status read_spec(td__sweep *s, const td__tree *given, const td__tree *spec)
{
    char *text = NULL;
    size_t nbytes = 0;
    td__job_spec *parsed;
    if (!spec || spec->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: spec: expected the job to try",
                       td__tree_where(spec ? spec : given).text);
    FILE *f = open_memstream(&text, &nbytes);
    td_status st = f ? td__tree_write(spec, f) : out_of_memory();
    if (f && fclose(f) && !st)
        st = out_of_memory();
    if (!st)
        s->spec = td__arena_strdup(s->arena, text);
    free(text);
    TD_TRY(st);
    if (!s->spec)
        return out_of_memory();
    TD_TRY(td__spec_parse(s->spec, strlen(s->spec), "spec", &parsed));
    td__spec_destroy(parsed);
    return TD_OK;
}

static td_status parse(td__sweep *s, const char *text, size_t nbytes, const char *source)
{
    td__tree *given, *root;
    TD_TRY(td__json_or_yaml(s->arena, text, nbytes, source, &given));
    if (given->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: expected a map of keys, found %s",
                       td__tree_where(given).text, td__tree_found(given).text);
    TD_TRY(td__keys_resolve(s->arena, td__sweep_keys, "", given, given, &root));
    for (const td__key *k = td__sweep_keys; k->path; k++) {
        const td__tree *t = td__keys_node(root, k->path);
        if (t && k->type != TD_KEY_TREE)
            TD_TRY(td__key_fill(s->arena, k, t, s));
    }
    TD_TRY(read_space(s, given, td__tree_get(given, "space")));
    return read_spec(s, given, td__tree_get(given, "spec"));
}

td_status td__sweep_parse(const char *text, size_t nbytes, const char *source, td__sweep **out)
{
    td__arena *a;
    *out = NULL;
    TD_TRY(td__arena_create(&a));
    td__sweep *s = td__arena_alloc(a, sizeof *s);
    td_status st = s ? TD_OK : out_of_memory();
    if (s) {
        s->arena = a;
        st = parse(s, text, nbytes, source);
    }
    if (st)
        td__arena_destroy(a);
    else
        *out = s;
    return st;
}

void td__sweep_destroy(td__sweep *s)
{
    if (s)
        td__arena_destroy(s->arena);
}

bool td__sweep_lower(const td__sweep *s)
{
    if (s->goal && *s->goal)
        return strcmp(s->goal, "min") == 0;
    return strstr(s->metric, "loss") || strstr(s->metric, "error") ||
           strstr(s->metric, "perplexity");
}

/* ---- trials ---- */

char *td__sweep_value(const td__sweep *s, int64_t trial, int dim, char buf[TD__SWEEP_VALUE])
{
    const td__sweep_dim *d = &s->dims[dim];
    td__rng_key key = {.seed = (uint64_t)s->seed, .stream = (uint32_t)dim, .step = (uint32_t)trial};
    double u = ldexp((double)td__rng_u32(&key, 0), -32) + ldexp((double)td__rng_u32(&key, 1), -64);
    int64_t at = trial;
    switch (d->kind) {
    case TD_SWEEP_CHOICE:
        if (strcmp(s->search, "grid") == 0) {
            for (int i = s->n_dims - 1; i > dim; i--) /* the last dimension varies fastest */
                at /= s->dims[i].n_choices;
            at %= d->n_choices;
        } else {
            at = (int64_t)(u * d->n_choices);
        }
        snprintf(buf, TD__SWEEP_VALUE, "%s", d->choices[at]);
        break;
    case TD_SWEEP_UNIFORM:
        snprintf(buf, TD__SWEEP_VALUE, "%.6g", d->lo + u * (d->hi - d->lo));
        break;
    case TD_SWEEP_LOG:
        snprintf(buf, TD__SWEEP_VALUE, "%.6g", exp(log(d->lo) + u * (log(d->hi) - log(d->lo))));
        break;
    case TD_SWEEP_INT:
        snprintf(buf, TD__SWEEP_VALUE, "%.0f", d->lo + floor(u * (d->hi - d->lo + 1)));
        break;
    }
    return buf;
}

static td_status set_values(const td__sweep *s, int64_t trial, td__job_spec *spec)
{
    char value[TD__SWEEP_VALUE];
    int n = 0;
    if (*spec->job_file) {
        const char **sets =
            td__arena_alloc(spec->arena, (size_t)(spec->n_sets + s->n_dims) * sizeof *sets);
        if (!sets)
            return out_of_memory();
        for (; n < spec->n_sets; n++)
            sets[n] = spec->sets[n];
        for (int d = 0; d < s->n_dims; d++, n++) {
            sets[n] = td__arena_printf(spec->arena, "%s=%s", s->dims[d].name,
                                       td__sweep_value(s, trial, d, value));
            if (!sets[n])
                return out_of_memory();
        }
        spec->sets = sets;
        spec->n_sets = n;
        return TD_OK;
    }
    td__pair *pairs =
        td__arena_alloc(spec->arena, (size_t)(spec->parameters.n + s->n_dims) * sizeof *pairs);
    if (!pairs)
        return out_of_memory();
    for (int i = 0; i < spec->parameters.n; i++) {
        bool varied = false;
        for (int d = 0; d < s->n_dims; d++)
            varied |= strcmp(s->dims[d].name, spec->parameters.at[i].key) == 0;
        if (!varied)
            pairs[n++] = spec->parameters.at[i];
    }
    for (int d = 0; d < s->n_dims; d++) {
        pairs[n].key = td__spec_text(spec, s->dims[d].name);
        pairs[n++].value = td__spec_text(spec, td__sweep_value(s, trial, d, value));
    }
    spec->parameters = (td__pairs){pairs, n};
    return TD_OK;
}

td_status td__sweep_trial(const td__sweep *s, int64_t trial, td__job_spec **out)
{
    td__job_spec *spec;
    char name[256];
    *out = NULL;
    TD_TRY(td__spec_parse(s->spec, strlen(s->spec), "spec", &spec));
    snprintf(name, sizeof name, "%.200s-%lld", s->name, (long long)trial);
    spec->name = td__spec_text(spec, name);
    td_status st = set_values(s, trial, spec);
    if (st)
        td__spec_destroy(spec);
    else
        *out = spec;
    return st;
}

/* ---- metrics ---- */

static const json_t *find_metric(const td__sweep *s, const json_t *line)
{
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const char *part = json_string_value(json_object_get(line, "part"));
    const json_t *metrics = json_object_get(line, "metrics");
    if (kind && strcmp(kind, "eval") == 0)
        return part && strcmp(part, "test") == 0 ? NULL : json_object_get(metrics, s->metric);
    if (kind && strcmp(kind, "step") == 0)
        return strcmp(s->metric, "train_loss") == 0 ? json_object_get(line, "loss") : NULL;
    if (kind)
        return NULL;
    const json_t *v = json_object_get(metrics, s->metric); /* of other programs */
    return v ? v : json_object_get(line, s->metric);
}

bool td__sweep_read(const td__sweep *s, const char *line, size_t nbytes, int64_t *step,
                    double *value)
{
    json_t *o = json_loadb(line, nbytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *v = o ? find_metric(s, o) : NULL;
    char *end = NULL;
    bool found = json_is_number(v);
    if (found)
        *value = json_number_value(v);
    else if (json_is_string(v)) { /* the book's training code reports texts */
        *value = strtod(json_string_value(v), &end);
        found = *json_string_value(v) && *end == 0;
    }
    if (found) {
        const json_t *at = json_object_get(o, "step");
        *step = json_is_integer(at) ? json_integer_value(at) : 0;
        found = isfinite(*value);
    }
    json_decref(o);
    return found;
}

/* ---- asha ---- */

void td__asha_fini(td__asha *a)
{
    for (int i = 0; i < a->n_rungs; i++)
        td__free(a->rungs[i].values);
    td__free(a->rungs);
    *a = (td__asha){0};
}

static struct td__asha_rung *rung_at(td__asha *a, int rung)
{
    while (a->n_rungs <= rung) {
        struct td__asha_rung *rungs =
            td__realloc(a->rungs, (size_t)(a->n_rungs + 1) * sizeof *rungs);
        if (!rungs)
            return NULL;
        a->rungs = rungs;
        a->rungs[a->n_rungs++] = (struct td__asha_rung){0};
    }
    struct td__asha_rung *r = &a->rungs[rung];
    if (r->n == r->room) {
        int room = r->room ? 2 * r->room : 16;
        double *values = td__realloc(r->values, (size_t)room * sizeof *values);
        if (!values)
            return NULL;
        r->values = values;
        r->room = room;
    }
    return r;
}

td_status td__asha_put(td__asha *a, int rung, double value)
{
    struct td__asha_rung *r = rung_at(a, rung);
    if (!r)
        return out_of_memory();
    r->values[r->n++] = value;
    return TD_OK;
}

/* Is the value, the last that came, among the best 1/factor of those that have reached the rung? */
static bool promising(const struct td__asha_rung *r, const td__sweep *s, double value)
{
    int better = 0;
    bool lower = td__sweep_lower(s);
    if (r->n < s->factor)
        return true; /* nothing to compare with yet */
    for (int i = 0; i < r->n; i++)
        better += lower ? r->values[i] < value : r->values[i] > value;
    return better < (r->n + s->factor - 1) / s->factor;
}

bool td__asha_report(td__asha *a, const td__sweep *s, int64_t step, double value, int *rung)
{
    for (;;) {
        double at = (double)s->min_steps * pow((double)s->factor, *rung);
        if ((double)step < at)
            return true;
        if (td__asha_put(a, *rung, value))
            return true;
        if (!promising(&a->rungs[(*rung)++], s, value))
            return false;
    }
}
