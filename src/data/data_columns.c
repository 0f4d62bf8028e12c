/* data_columns.c -- the columns of a table, for people: kind, range, share of missing cells. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/data_impl.h"
#include "data/fit_json.h"

enum { NAME = 24, RANGE = 64 };

static void add_range(const json_t *c, char *out, size_t nbytes)
{
    const json_t *values = json_object_get(c, "values");
    json_int_t buckets = json_integer_value(json_object_get(c, "buckets"));
    json_int_t width = json_integer_value(json_object_get(c, "width"));
    double facts[3];

    *out = 0;
    if (td__fit_load_numbers(json_object_get(c, "fill_least_most"), facts, 3))
        snprintf(out, nbytes, "%.6g .. %.6g", facts[1], facts[2]);
    else if (values)
        snprintf(out, nbytes, "%zu values", json_array_size(values));
    else if (buckets)
        snprintf(out, nbytes, "%" JSON_INTEGER_FORMAT " buckets", buckets);
    else if (width)
        snprintf(out, nbytes, "at most %" JSON_INTEGER_FORMAT " bytes", width);
}

static void add_column(const json_t *c, td__text *out)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const char *kind = json_string_value(json_object_get(c, "kind"));
    json_int_t rows = json_integer_value(json_object_get(c, "rows"));
    json_int_t missing = json_integer_value(json_object_get(c, "missing"));
    char range[RANGE];

    add_range(c, range, sizeof range);
    td__text_printf(out, "  column %-*s %-10s %s", NAME, name ? name : "?", kind ? kind : "?",
                    range);
    if (missing)
        td__text_printf(out, ", %.3g %% missing", 100.0 * (double)missing / (double)rows);
    td__text_add(out, "\n");
}

td_status td__data_columns(const td__data *d, td__text *out)
{
    const td__dataset *train = d->source_part[TD_PART_TRAIN];
    json_error_t error;

    if (!train || !train->measured)
        return TD_OK;
    json_t *root = json_loads(train->measured, JSON_ALLOW_NUL, &error);
    const json_t *columns = json_object_get(root, "columns");
    for (size_t i = 0; i < json_array_size(columns); i++)
        add_column(json_array_get(columns, i), out);
    json_decref(root);
    return td__text_status(out);
}
