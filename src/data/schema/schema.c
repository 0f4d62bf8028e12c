/* schema.c -- what the columns of a table are, decided on the train file; see schema.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/schema/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

/* Categories without being asked, and with. */
enum { MAX_CATEGORIES = 64, MOST_CATEGORIES = 1 << 20, MAX_TEXT = 1 << 16, SHOWN = 40 };

static const char *const MISSING[] = {
#define X(id, name) [TD_MISSING_##id] = name,
    TD__MISSING_MAP(X)
#undef X
};

/* What the cells of a column are. */
typedef struct tally {
    int64_t numbers, texts, missing;
    int64_t first_text, first_missing; /* rows */
} tally;

static tally count_cells(const td__records *r, int64_t at)
{
    tally t = {0};
    double x[TD__SOME_ROWS];
    bool there[TD__SOME_ROWS];

    for (int64_t i = 0; i < r->rows; i++) {
        int64_t k = i % TD__SOME_ROWS;
        if (k == 0)
            td__rough_rows(r, i, td__some_rows(r, i), at, x, there);
        if (there[k])
            t.numbers++;
        else if (td__missing_at(r, i, at))
            t.first_missing = t.missing++ ? t.first_missing : i;
        else
            t.first_text = t.texts++ ? t.first_text : i;
    }
    return t;
}

/* ---- Categories ------------------------------------------------------------------------------ */

static int by_bits(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The texts of the different numbers of a column, in the arena. bits: (rows) */
static td_status number_texts(const td__records *r, int64_t at, uint64_t *bits, td__cell *out,
                              int64_t *count)
{
    const td__values *v = &r->values[at];
    size_t each = td__values_size(v->type);
    int64_t n = 0;

    for (int64_t i = 0; i < r->rows; i++)
        if (!td__missing_at(r, i, at))
            memcpy(&bits[n++], (const char *)v->data + (size_t)i * each, each);
    qsort(bits, (size_t)n, sizeof *bits, by_bits);
    for (int64_t i = 0; i < n; i++) {
        td__values one = {.type = v->type, .data = &bits[i]};
        td__records alone = {.rows = 1, .cols = 1, .values = &one};
        char room[TD__CELL_ROOM];
        if (i && bits[i] == bits[i - 1])
            continue;
        td__cell c = td__cell_at(&alone, 0, 0, room);
        const char *text = td__arena_strdup(r->arena, room);
        if (!text)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for its cells", r->where);
        out[(*count)++] = (td__cell){text, c.nbytes};
    }
    return TD_OK;
}

/* The texts of a column that are there, each at least once. */
static td_status list_texts(const td__records *r, int64_t at, bool is_text, bool known_missing,
                            td__cell *out, int64_t *count)
{
    if (!is_text) {
        uint64_t *bits = td__calloc((size_t)r->rows + 1, sizeof *bits);
        td_status st = bits ? number_texts(r, at, bits, out, count)
                            : TD_FAIL(TD_ENOMEM, "%s: no memory for its cells", r->where);
        td__free(bits);
        return st;
    }
    for (int64_t i = 0; i < r->rows; i++) {
        td__cell c = td__cell_at(r, i, at, NULL);
        if (known_missing ? !td__cell_missing(&c) : c.text && c.nbytes)
            out[(*count)++] = c;
    }
    return TD_OK;
}

/* The sorted different texts of a column; `most` limits how many. */
static td_status collect(const td__schema *s, const td__records *r, int64_t at, int64_t most,
                         td__column *out)
{
    td__cell *all = td__calloc((size_t)r->rows + 1, sizeof *all);
    bool is_text = !r->values || r->values[at].type == TD_VALUES_CELL;
    int64_t n = 0, kept = 0;

    if (!all)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for column '%s'", r->where, out->name);
    out->value = all;
    for (int64_t i = 0; i < r->rows; i++) {
        bool missing = td__missing_at(r, i, at);
        if (is_text && !s->missing) { /* words for missing ones are texts like others */
            td__cell c = td__cell_at(r, i, at, NULL);
            missing = !c.text || !c.nbytes;
        }
        if (missing && s->missing <= TD_MISSING_ERROR)
            return td__bad_cell(r, i, at, "a value; data.missing says what to do without");
        out->missing += missing;
    }
    TD_TRY(list_texts(r, at, is_text, s->missing != TD_MISSING_UNSAID, all, &n));
    qsort(all, (size_t)n, sizeof *all, td__cell_compare);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || td__cell_compare(&all[i], &all[kept - 1]) != 0)
            all[kept++] = all[i];
    out->values = kept;
    if (!kept)
        return TD_FAIL(TD_EINVAL, "%s: all cells of column '%s' are missing", r->where, out->name);
    if (kept <= most)
        return TD_OK;
    int64_t row = count_cells(r, at).first_text;
    char room[TD__CELL_ROOM];
    td__cell c = td__cell_at(r, row, at, room);
    return TD_FAIL(TD_EINVAL,
                   "%s:%" PRId64 ": column '%s' is '%.*s', not a finite number, and has %" PRId64
                   " different texts; at most %" PRId64
                   " can be a feature: leave it out of data.columns, or hash it (data.features)",
                   r->where, r->line[row], out->name, (int)(c.nbytes < SHOWN ? c.nbytes : SHOWN),
                   c.text, kept, most);
}

bool td__schema_no_class(const td__schema *s, const td__cell *cell)
{
    double x;
    return s->no_class < 0 && td__cell_number(cell, &x) && x == (double)s->no_class;
}

static td_status make_classes(td__schema *s, const td__records *train, int64_t at)
{
    tally t = count_cells(train, at);
    int64_t kept = 0;

    for (int64_t i = 0; !t.texts && !t.missing && i < train->rows; i++) {
        double x = 0;
        td__number_at(train, i, at, &x);
        if (x != floor(x))
            return td__bad_cell(train, i, at, "a class; for numbers set data.target to number");
    }
    td__schema plain = {.missing = TD_MISSING_UNSAID}; /* a label is never filled in */
    TD_TRY(collect(&plain, train, at, INT32_MAX, &s->label));
    for (int64_t k = 0; k < s->label.values; k++) /* numbered without the one that is none */
        if (!td__schema_no_class(s, &s->label.value[k]))
            s->label.value[kept++] = s->label.value[k];
    s->label.values = kept;
    return kept ? TD_OK
                : TD_FAIL(TD_EINVAL, "%s: column '%s' has no class but the ignored one",
                          train->where, s->label.name);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The numbers of a column that are there, in order; those in the middle are the median. */
static td_status find_median(const td__records *r, int64_t at, td__column *c)
{
    double *x = td__calloc((size_t)r->rows + 1, sizeof *x);
    int64_t n = 0;

    if (!x)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for column '%s'", r->where, c->name);
    for (int64_t i = 0; i < r->rows; i++)
        n += td__number_at(r, i, at, &x[n]);
    qsort(x, (size_t)n, sizeof *x, by_value);
    if (n)
        c->fill = (x[(n - 1) / 2] + x[n / 2]) / 2;
    td__free(x);
    return TD_OK;
}

/* Range, and what missing cells become: the mean or median of the others. */
static td_status measure(const td__schema *s, const td__records *r, int64_t at, td__column *c)
{
    double sum = 0, some[TD__SOME_ROWS], lowest = 0, highest = 0;
    bool there[TD__SOME_ROWS];
    int64_t n = 0, low = 0, high = 0; /* rows */

    if (s->missing == TD_MISSING_MEDIAN)
        TD_TRY(find_median(r, at, c));
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t k = i % TD__SOME_ROWS;
        if (k == 0)
            td__rough_rows(r, i, td__some_rows(r, i), at, some, there);
        if (!there[k])
            continue;
        double x = some[k];
        if (!n || x < lowest) {
            lowest = x;
            low = i;
        }
        if (!n || x >= highest) {
            highest = x;
            high = i;
        }
        n++;
        if (s->missing == TD_MISSING_MEAN && td__number_at(r, i, at, &x))
            sum += x;
    }
    if (n) {
        td__number_at(r, low, at, &c->least);
        td__number_at(r, high, at, &c->most);
    }
    c->missing = r->rows - n;
    if (n && s->missing == TD_MISSING_MEAN)
        c->fill = sum / (double)n;
    return TD_OK;
}

static td_status make_number(const td__schema *s, const td__records *r, int64_t at, td__column *c)
{
    tally t = count_cells(r, at);

    if (t.texts)
        return td__bad_cell(r, t.first_text, at, "a finite number");
    if (t.missing && s->missing <= TD_MISSING_ERROR)
        return td__bad_cell(r, t.first_missing, at,
                            "a finite number; for missing ones set data.missing to mean, median, "
                            "zero or drop");
    if (!t.numbers)
        return TD_FAIL(TD_EINVAL, "%s: all cells of column '%s' are missing", r->where, c->name);
    return measure(s, r, at, c);
}

/* ---- Features -------------------------------------------------------------------------------- */

static void longest(const td__records *r, int64_t at, td__column *c)
{
    for (int64_t i = 0; i < r->rows; i++) {
        char room[TD__CELL_ROOM];
        int64_t n = (int64_t)td__cell_at(r, i, at, room).nbytes;
        c->width = n > c->width ? n : c->width;
    }
    c->width = c->width > MAX_TEXT ? MAX_TEXT : c->width;
}

/* A column that nobody has said anything of. One of numbers with something else in between would
 * become categories by accident. */
static td_status guess_feature(td__schema *s, const td__records *r, int64_t at, bool alone,
                               td__column *c)
{
    tally t = count_cells(r, at);
    char room[TD__CELL_ROOM];

    if (!t.texts && (t.numbers || s->missing))
        return make_number(s, r, at, c);
    if (t.numbers > t.texts)
        return td__bad_cell(r, t.first_text, at,
                            "a finite number, as most others are; for categories: data.features: "
                            "[{one_hot: NAME}]");
    c->kind = alone ? TD_COLUMN_TEXT : TD_COLUMN_CATEGORY;
    if (!alone)
        return collect(s, r, at, MAX_CATEGORIES, c);
    if (t.missing && !td__cell_at(r, t.first_missing, at, room).text)
        return td__bad_cell(r, t.first_missing, at, "a value");
    longest(r, at, c);
    return TD_OK;
}

static td_status copy_boundaries(const td_feature *f, td__column *c)
{
    c->n_boundaries = f->n_boundaries;
    c->boundary = td__calloc((size_t)f->n_boundaries + 1, sizeof *c->boundary);
    if (!c->boundary)
        return TD_FAIL(TD_ENOMEM, "no memory for the boundaries of '%s'", f->column);
    for (int i = 0; i < f->n_boundaries; i++) {
        c->boundary[i] = f->boundaries[i];
        if (!isfinite(c->boundary[i]) || (i && !(c->boundary[i] > c->boundary[i - 1])))
            return TD_FAIL(TD_EINVAL, "the boundaries of '%s' must be rising numbers", f->column);
    }
    return c->n_boundaries ? TD_OK
                           : TD_FAIL(TD_EINVAL, "bucketized '%s' needs boundaries", f->column);
}

/* A column that data.features lists. */
static td_status make_feature(td__schema *s, const td_feature *f, const td__records *r, int64_t at,
                              td__column *c)
{
    switch (c->kind) {
    case TD_COLUMN_BUCKETS: TD_TRY(copy_boundaries(f, c)); return make_number(s, r, at, c);
    case TD_COLUMN_NUMBER: return make_number(s, r, at, c);
    case TD_COLUMN_CATEGORY:
    case TD_COLUMN_EMBEDDING: return collect(s, r, at, MOST_CATEGORIES, c);
    case TD_COLUMN_TEXT: longest(r, at, c); return TD_OK;
    case TD_COLUMN_HASHED:
    case TD_COLUMN_CROSSED:
    case TD_COLUMN_KINDS: break;
    }
    c->buckets = f->buckets;
    if (c->buckets < 2 || c->buckets > MOST_CATEGORIES)
        return TD_FAIL(TD_EINVAL, "the buckets of '%s': %" PRId64 ", expected 2 to %d", f->column,
                       c->buckets, MOST_CATEGORIES);
    return TD_OK;
}

bool td__column_own(const td__schema *s, const td__column *c)
{
    return c->kind == TD_COLUMN_EMBEDDING || (c->kind == TD_COLUMN_TEXT && s->n_features > 1);
}

static void set_width(td__schema *s, td__column *c)
{
    if (c->kind == TD_COLUMN_CATEGORY)
        c->width = c->values;
    if (c->kind == TD_COLUMN_BUCKETS)
        c->width = c->n_boundaries + 1;
    if (c->kind == TD_COLUMN_HASHED || c->kind == TD_COLUMN_CROSSED)
        c->width = c->buckets;
    if (!td__column_own(s, c))
        s->width += c->width;
}

/* ---- Which columns --------------------------------------------------------------------------- */

/* "x" in data.columns also means x[0], x[1] ... of a list. */
static bool named(const char *list_item, const char *name)
{
    size_t n = strlen(list_item);
    return strncmp(name, list_item, n) == 0 && (name[n] == 0 || name[n] == '[');
}

static bool wanted(const td__source_opts *o, const char *name)
{
    bool found = !o->n_columns;

    for (int i = 0; i < o->n_columns; i++)
        found = found || named(o->columns[i], name);
    return found;
}

static td_status check_columns(const td__source_opts *o, const td__records *train)
{
    if (o->n_columns && o->n_features)
        return TD_FAIL(TD_EINVAL, "data.features lists columns: leave out data.columns");
    for (int i = 0; i < o->n_columns; i++) {
        bool found = false;
        for (int64_t c = 0; c < train->cols; c++)
            found = found || named(o->columns[i], train->names[c]);
        if (!found)
            return td__no_column(train, o->columns[i]);
    }
    return TD_OK;
}

static td_status find_kind(const td_feature *f, td__column_kind *out)
{
    static const char *const KINDS[TD_COLUMN_KINDS] = {
#define X(id, name, feature) [TD_COLUMN_##id] = feature,
        TD__COLUMN_KIND_MAP(X)
#undef X
    };

    for (int k = 0; f->kind && k < TD_COLUMN_KINDS; k++)
        if (strcmp(KINDS[k], f->kind) == 0) {
            *out = (td__column_kind)k;
            return TD_OK;
        }
    return TD_FAIL(TD_EINVAL, "unknown kind of feature '%s'", f->kind ? f->kind : "");
}

static td_status list_feature(const td_feature *f, const td__records *train, td__column *c)
{
    int64_t at = f->column ? td__records_find(train, f->column) : -1;

    if (at < 0)
        return td__no_column(train, f->column ? f->column : "");
    TD_TRY(find_kind(f, &c->kind));
    c->name = train->names[at];
    if (f->n_with > TD__MAX_CROSSED - 1 || (c->kind == TD_COLUMN_CROSSED) != (f->n_with > 0))
        return TD_FAIL(TD_EINVAL, "'%s' is crossed with %d columns, expected 1 to %d", f->column,
                       f->n_with, TD__MAX_CROSSED - 1);
    for (int i = 0; i < f->n_with; i++) {
        int64_t other = td__records_find(train, f->with[i]);
        if (other < 0)
            return td__no_column(train, f->with[i]);
        c->more[c->n_more++] = train->names[other];
    }
    return TD_OK;
}

/* Names and kinds, before any cell is looked at. */
static td_status list_features(td__schema *s, const td__source_opts *o, const td__records *train)
{
    int64_t most = o->n_features ? o->n_features : train->cols;

    s->features = td__calloc((size_t)most, sizeof *s->features);
    if (!s->features)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " columns", train->where, most);
    for (int i = 0; i < o->n_features; i++)
        TD_TRY(list_feature(&o->features[i], train, &s->features[s->n_features++]));
    for (int64_t c = 0; !o->n_features && c < train->cols; c++)
        if (wanted(o, train->names[c]) && strcmp(train->names[c], s->label.name) != 0)
            s->features[s->n_features++].name = train->names[c];
    if (s->n_features == 0)
        return TD_FAIL(TD_EINVAL, "%s: there is no column besides the label '%s'", train->where,
                       s->label.name);
    return TD_OK;
}

static td_status make_features(td__schema *s, const td__source_opts *o, const td__records *train)
{
    for (int64_t i = 0; i < s->n_features; i++) {
        td__column *c = &s->features[i];
        int64_t at = td__records_find(train, c->name);
        c->width = 1;
        c->rows = train->rows;
        if (o->n_features)
            TD_TRY(make_feature(s, &o->features[i], train, at, c));
        else
            TD_TRY(guess_feature(s, train, at, s->n_features == 1, c));
        set_width(s, c);
    }
    return TD_OK;
}

/* On the rows that training reads. */
static td_status measure_features(td__schema *s, const td__source_opts *o,
                                  const struct td__split *cut, const td__records *all)
{
    td__records own = {0};
    bool *use;

    TD_TRY(td__schema_rows(o, cut, all, &use));
    td_status st = use ? td__records_pick(all, use, &own) : TD_OK;
    if (!st && use && !own.rows)
        st = TD_FAIL(TD_EINVAL, "%s: part train has no samples", all->where);
    if (!st)
        st = make_features(s, o, use ? &own : all);
    td__records_drop(&own);
    td__free(use);
    return st;
}

static td_status make_label(td__schema *s, const td__source_opts *o, const td__records *train)
{
    const char *target = o->target ? o->target : "class";
    int64_t at = o->label ? td__records_find(train, o->label) : train->cols - 1;

    if (at < 0)
        return td__no_column(train, o->label);
    s->label.name = train->names[at];
    s->no_class = o->no_class;
    s->label_is_class = strcmp(target, "class") == 0;
    if (!s->label_is_class && strcmp(target, "number") != 0)
        return TD_FAIL(TD_EINVAL, "data.target is '%s', expected class or number", target);
    s->label.width = 1;
    s->label.kind = s->label_is_class ? TD_COLUMN_CATEGORY : TD_COLUMN_NUMBER;
    return TD_OK;
}

static td_status find_missing(td__schema *s, const char *word)
{
    for (int m = TD_MISSING_ERROR; word && m < TD_LEN(MISSING); m++)
        if (strcmp(MISSING[m], word) == 0)
            s->missing = (td__missing)m;
    return !word || s->missing
               ? TD_OK
               : TD_FAIL(TD_EINVAL,
                         "data.missing is '%s', expected error, mean, median, zero or "
                         "drop",
                         word);
}

/* ---- Rows without all cells ------------------------------------------------------------------ */

static void use_column(const td__records *r, const char *name, bool *used)
{
    int64_t at = td__records_find(r, name);
    if (at >= 0)
        used[at] = true;
}

td_status td__schema_drop(const td__schema *s, td__records *r)
{
    int64_t kept = 0;

    if (s->missing != TD_MISSING_DROP)
        return TD_OK;
    bool *used = td__calloc((size_t)r->cols + 1, sizeof *used);
    if (!used)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " columns", r->where, r->cols);
    r->place = td__calloc((size_t)r->rows + 1, sizeof *r->place);
    if (!r->place) {
        td__free(used);
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " rows", r->where, r->rows);
    }
    for (int64_t i = 0; i < r->rows; i++)
        r->place[i] = i;
    use_column(r, s->label.name, used);
    for (int64_t f = 0; f < s->n_features; f++) {
        use_column(r, s->features[f].name, used);
        for (int k = 0; k < s->features[f].n_more; k++)
            use_column(r, s->features[f].more[k], used);
    }
    for (int64_t i = 0; i < r->rows; i++) {
        bool whole = true;
        for (int64_t c = 0; c < r->cols && whole; c++)
            whole = !used[c] || !td__missing_at(r, i, c);
        if (whole)
            td__records_move(r, i, kept++);
    }
    r->rows = kept;
    td__free(used);
    return TD_OK;
}

td_status td__schema_make(td__schema *s, const td__source_opts *o, const struct td__split *cut,
                          td__records *train)
{
    int64_t rows = train->rows;

    TD_TRY(find_missing(s, o->missing));
    TD_TRY(make_label(s, o, train));
    TD_TRY(check_columns(o, train));
    TD_TRY(list_features(s, o, train));
    TD_TRY(td__schema_drop(s, train));
    if (!train->rows)
        return TD_FAIL(TD_EINVAL,
                       "%s: each of %" PRId64 " rows has a missing cell; data.missing: "
                       "drop leaves none",
                       train->where, rows);
    if (s->label_is_class)
        TD_TRY(make_classes(s, train, td__records_find(train, s->label.name)));
    return measure_features(s, o, cut, train);
}

void td__schema_fini(td__schema *s)
{
    for (int64_t i = 0; i < s->n_features; i++) {
        td__free(s->features[i].value);
        td__free(s->features[i].boundary);
    }
    td__free(s->features);
    td__free(s->label.value);
    td__arena_destroy(s->arena);
}
