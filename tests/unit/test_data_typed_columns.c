/* Columns of numbers give the samples, measurements and errors that the same cells give as texts,
 * bit for bit, whatever a column is used for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/key.h"
#include "data/schema/schema.h"
#include "support/check.h"

enum { ROWS = 60, COLS = 6 };

static const char *const NAMES[COLS] = {"f", "d", "i", "u", "t", "y"};
static const td__values_type TYPES[COLS] = {TD_VALUES_F32, TD_VALUES_F64,  TD_VALUES_I64,
                                            TD_VALUES_U64, TD_VALUES_CELL, TD_VALUES_I64};

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* The value of a row, set in a column, and its text; missing: now and then. */
static void set_value(td__records *typed, td__records *text, int64_t row, int64_t c, uint32_t x,
                      bool missing, bool odd)
{
    td__values *v = &typed->values[c];
    char number[64] = "";
    double d = ((double)x - (1 << 23)) / 1e6;

    switch (v->type) {
    case TD_VALUES_F32:
        ((float *)v->data)[row] = missing ? NAN : odd ? INFINITY : (float)d;
        snprintf(number, sizeof number, "%.9g", odd ? (double)INFINITY : (double)(float)d);
        break;
    case TD_VALUES_F64:
        ((double *)v->data)[row] = missing ? (double)NAN : d * 1e-3;
        td__real_text(d * 1e-3, number, sizeof number);
        break;
    case TD_VALUES_I64:
        ((int64_t *)v->data)[row] = (int64_t)(x % 7) - 3 + (odd ? INT64_C(9007199254740993) : 0);
        snprintf(number, sizeof number, "%" PRId64, ((int64_t *)v->data)[row]);
        break;
    case TD_VALUES_U64:
        ((uint64_t *)v->data)[row] = (uint64_t)(x % 5) << 61;
        snprintf(number, sizeof number, "%" PRIu64, ((uint64_t *)v->data)[row]);
        break;
    case TD_VALUES_CELL: snprintf(number, sizeof number, "t%u", x % 4); break;
    }
    if (v->missing)
        v->missing[row] = missing;
    td__cell cell = {missing ? NULL : td__arena_strdup(text->arena, number), 0};
    cell.nbytes = missing ? 0 : strlen(number);
    text->cells[row * COLS + c] = cell;
    if (v->type == TD_VALUES_CELL)
        ((td__cell *)v->data)[row] = cell;
}

static void fill(td__records *typed, td__records *text, bool missing, bool odd)
{
    td__cell names[COLS], *cells;
    uint32_t state = 7;

    for (int c = 0; c < COLS; c++)
        names[c] = (td__cell){NAMES[c], strlen(NAMES[c])};
    CHECK_OK(td__records_init(typed, "a"));
    CHECK_OK(td__records_init(text, "a"));
    CHECK_OK(td__records_columns(typed, names, COLS));
    CHECK_OK(td__records_columns(text, names, COLS));
    CHECK_OK(td__records_types(typed, TYPES));
    CHECK_OK(td__records_extend(typed, ROWS / 3)); /* in two goes, as row groups come */
    CHECK_OK(td__records_missable(typed, 2));
    CHECK_OK(td__records_extend(typed, ROWS - ROWS / 3));
    for (int64_t i = 0; i < ROWS; i++) {
        CHECK_OK(td__records_row(text, i + 1, &cells));
        for (int c = 0; c < COLS; c++) {
            uint32_t x = draw(&state);
            bool gone = missing && c != 3 && c != 5 && draw(&state) % 6 == 0;
            set_value(typed, text, i, c, x, gone, odd && i == 11);
        }
    }
}

/* All that a table has, as one text of bytes. */
static td_status encode(td__records *r, const td__source_opts *o, td__text *out)
{
    td__schema s = {0};
    td__table *t = NULL;
    td_status st = td__schema_make(&s, o, NULL, r);

    if (!st)
        st = td__table_create(r->rows, &t);
    if (!st)
        st = td__schema_encode(&(td__reading){.s = &s, .r = r, .file_nbytes = 1 << 20}, t);
    for (int f = 0; !st && f < t->head.n_fields; f++) {
        td__text_append(out, t->head.fields[f].name, strlen(t->head.fields[f].name));
        td__text_append(out, t->column[f], t->nbytes[f] * (size_t)r->rows);
    }
    if (!st)
        td__text_append(out, t->head.measured, strlen(t->head.measured));
    else
        td__text_append(out, td_last_error(), strlen(td_last_error()));
    td__table_destroy(t);
    td__schema_fini(&s);
    return st;
}

/* How many of the cases gave samples: a test that only compares errors would be none. */
static int compare(const td__source_opts *o, bool missing, bool odd, const char *name)
{
    td__records typed, text;
    td__text a = {0}, b = {0};

    fill(&typed, &text, missing, odd);
    td_status x = encode(&typed, o, &a), y = encode(&text, o, &b);
    CHECK(x == y && a.used == b.used && memcmp(a.data, b.data, a.used) == 0,
          "%s: typed %s '%.80s', texts %s '%.80s'", name, td_status_name(x), a.data,
          td_status_name(y), b.data);
    td__text_fini(&a);
    td__text_fini(&b);
    td__records_fini(&typed);
    td__records_fini(&text);
    return !x;
}

TEST(every_use_of_a_column)
{
    static const char *const KINDS[] = {"numeric",    "one_hot", "embedding",
                                        "bucketized", "hashed",  "text"};
    static const char *const MISSING[] = {NULL, "error", "mean", "median", "zero", "drop"};
    static const double BOUNDARY[] = {-1, 0.1, 3};
    int good = 0, all = 0;

    for (int k = 0; k < TD_LEN(KINDS); k++)
        for (int c = 0; c < COLS - 1; c++)
            for (int m = 0; m < TD_LEN(MISSING); m++)
                for (int how = 0; how < 4; how++) {
                    td_feature f = {.kind = KINDS[k],
                                    .column = NAMES[c],
                                    .boundaries = BOUNDARY,
                                    .n_boundaries = k == 3 ? TD_LEN(BOUNDARY) : 0,
                                    .buckets = k == 4 ? 13 : 0};
                    td__source_opts o = {
                        .label = "y", .missing = MISSING[m], .features = &f, .n_features = 1};
                    char name[64];
                    snprintf(name, sizeof name, "%s %s %s %d", KINDS[k], NAMES[c],
                             MISSING[m] ? MISSING[m] : "-", how);
                    good += compare(&o, how & 1, how & 2, name);
                    all++;
                }
    CHECK(good > all / 2, "%d of %d gave samples", good, all);
}

TEST(every_column_as_label)
{
    int good = 0;

    for (int c = 0; c < COLS; c++)
        for (int how = 0; how < 8; how++) {
            const char *columns[] = {c == 1 ? "f" : "d"};
            td__source_opts o = {.label = NAMES[c],
                                 .target = how & 4 ? "number" : NULL,
                                 .missing = how & 1 ? "drop" : NULL,
                                 .columns = columns,
                                 .n_columns = 1};
            good += compare(&o, how & 1, how & 2, NAMES[c]);
        }
    CHECK(good >= 20, "%d of 48 gave samples", good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_use_of_a_column),
        cmocka_unit_test(every_column_as_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
