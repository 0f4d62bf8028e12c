/* records_open.c -- from rows of cells to samples; see records.h.
 *
 * 1. Read the train file and decide what each column is (the schema), or take the schema that a
 *    trained model came with.
 * 2. Read the part's file, if it is another one, and find the columns by name.
 * 3. Encode. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/records.h"
#include "data/schema/schema.h"
#include "data/series.h"

/* A file and its rows. */
typedef struct input {
    char path[TD__PATH];
    td__file_map map;
    td__records records;
} input;

static td_status open_input(input *in, const td__table_format *format, const td__source_opts *o,
                            const char *part)
{
    const char *name;

    TD_TRY(td__part_file(format->source, o, part, format->expected, &name));
    if (format->is_elsewhere && format->is_elsewhere(name)) {
        TD_TRY(td__data_path(NULL, name, in->path));
        TD_TRY(td__records_init(&in->records, in->path));
        return format->ask(&in->records, o, in->path);
    }
    TD_TRY(td__data_path(o->dir, name, in->path));
    TD_TRY(td__data_map(in->path, format->expected, &in->map));
    TD_TRY(td__records_init(&in->records, in->path));
    return format->parse(&in->records, o, in->map.data, in->map.nbytes);
}

/* Bytes that its rows were read from. */
static size_t nbytes_of(const input *in)
{
    size_t n = in->map.nbytes;
    for (int64_t i = 0;
         in->records.cells && !in->map.data && i < in->records.rows * in->records.cols; i++)
        n += in->records.cells[i].nbytes + 1;
    return n;
}

static void close_input(input *in)
{
    td__records_fini(&in->records);
    td__file_map_close(&in->map);
}

td_status td__records_open(const td__table_format *format, const td__source_opts *o,
                           const char *part, const td__fit *fit, const struct td__split *cut,
                           td__dataset **out)
{
    input train = {0}, own = {0};
    td__schema s = {0};
    td__table *t = NULL;
    const char *name;
    td_status st = TD_OK;

    *out = NULL;
    TD_TRY(td__part_file(format->source, o, part, format->expected, &name));
    if (fit) {
        TD_TRY_OR(st, done, td__schema_load(&s, fit));
    } else {
        TD_TRY_OR(st, done, open_input(&train, format, o, "train"));
        TD_TRY_OR(st, done, td__schema_make(&s, o, cut, &train.records));
    }
    bool other_file = fit || strcmp(part, "train") != 0;
    const input *in = other_file ? &own : &train;
    if (other_file)
        TD_TRY_OR(st, done, open_input(&own, format, o, part));
    bool optional = o->unlabelled && strcmp(part, "test") == 0;
    td__reading how = {.s = &s,
                       .r = &in->records,
                       .file_nbytes = nbytes_of(in),
                       .label_optional = optional,
                       .fitted = fit || cut};
    /* New rows without labels want a prediction each. */
    if (in == &own && !(fit && optional))
        TD_TRY_OR(st, done, td__schema_drop(&s, &own.records));
    TD_TRY_OR(st, done, td__table_create(in->records.rows, &t));
    TD_TRY_OR(st, done, td__schema_encode(&how, t));
    if (o->window) {
        td__series_opts windows = td__series_of(o, s.joined ? NULL : in->records.place);
        windows.beyond = optional;
        st = td__series_create(t, &windows, out);
    } else {
        *out = &t->head;
    }
    t = NULL;
done:
    td__table_destroy(t);
    td__schema_fini(&s);
    close_input(&own);
    close_input(&train);
    return st;
}
