/* map_filter.c -- keep the samples of which a condition on one number holds: "y < 5", "y != cat".
 *
 * text is FIELD OPERATOR VALUE, or OPERATOR VALUE about `field`; operators are < <= > >= == !=, the
 * value is a number or the name of a class. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/map.h"

typedef enum relation { LESS_EQUAL, GREATER_EQUAL, EQUAL, NOT_EQUAL, LESS, GREATER } relation;

static const char *const SIGNS[] = {"<=", ">=", "==", "!=", "<", ">"}; /* longer ones first */

typedef struct state {
    relation relation;
    double value;
} state;

static td_status parse_value(const td__map *m, const char *text, double *value)
{
    char *end;

    for (int64_t c = 0; m->in.class_names && c < m->in.classes; c++)
        if (strcmp(m->in.class_names[c], text) == 0) {
            *value = (double)c;
            return TD_OK;
        }
    *value = strtod(text, &end);
    if (end == text || *end || !isfinite(*value))
        return TD_FAIL(TD_EINVAL, "filter: '%s' is neither a number nor a class of %s", text,
                       m->in.name);
    return TD_OK;
}

static td_status filter_open(td__map *m, td__dataset *train)
{
    const char *text = m->opts.text ? m->opts.text : "";
    char name[TD__FIELD_NAME] = "";
    size_t n = 0;

    text += strspn(text, " ");
    n = strcspn(text, " <>=!");
    if (n >= sizeof name)
        return TD_FAIL(TD_EINVAL, "filter: '%s': the field name is too long", text);
    memcpy(name, text, n);
    if (n) {
        m->field = td__dataset_field(train, name);
        if (m->field < 0)
            return TD_FAIL(TD_EINVAL, "filter: samples have no field '%s'", name);
        m->in = m->out = train->fields[m->field];
    }
    text += n + strspn(text + n, " ");
    if (td_shape_count(&m->in.shape) != 1 || m->in.dtype == TD_F16 || m->in.dtype == TD_BF16)
        return TD_FAIL(TD_EINVAL, "filter: field %s is not a single number", m->in.name);
    state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for filter");
    m->state = s;
    for (int i = 0; i < TD_LEN(SIGNS); i++)
        if (strncmp(text, SIGNS[i], strlen(SIGNS[i])) == 0) {
            text += strlen(SIGNS[i]);
            s->relation = (relation)i;
            return parse_value(m, text + strspn(text, " "), &s->value);
        }
    return TD_FAIL(TD_EINVAL, "filter: '%s': expected a condition such as \"y < 5\"",
                   m->opts.text ? m->opts.text : "");
}

static bool holds(relation r, double x, double value)
{
    switch (r) {
    case LESS: return x < value;
    case LESS_EQUAL: return x <= value;
    case GREATER: return x > value;
    case GREATER_EQUAL: return x >= value;
    case EQUAL: return x == value;
    case NOT_EQUAL: return x != value;
    }
    return false;
}

static void filter_keep(const td__map *m, int64_t n, const void *x, bool *keep)
{
    const state *s = m->state;

    for (int64_t i = 0; i < n; i++)
        keep[i] = holds(s->relation, td__element(x, m->in.dtype, i), s->value);
}

const td__map_def td__map_filter = {
    .name = "filter",
    .help = "keeps the samples that meet a condition: \"y < 5\", \"y != cat\"",
    .reads = "text",
    .open = filter_open,
    .keep = filter_keep,
};
