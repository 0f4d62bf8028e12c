/* intent.c -- see intent.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/data/intent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "service/data/csv.h"
#include "service/data/labels.h"

enum { PATH_BYTES = 4096, MOST_BYTES = 512 << 20 };

static const char *path_of(char buf[PATH_BYTES], const char *dir, const char *name)
{
    snprintf(buf, PATH_BYTES, "%s/%s", dir, name);
    return buf;
}

/* The parts of "a;b": calls `each` with every one, in a buffer of its own. */
static td_status each_part(const char *parts, td__text *buf,
                           td_status (*each)(void *arg, const char *part), void *arg)
{
    for (const char *at = parts, *end;; at = end + 1) {
        end = strchrnul(at, ';');
        td__text_clear(buf);
        td__text_append(buf, at, (size_t)(end - at));
        TD_TRY(td__text_status(buf));
        TD_TRY(each(arg, buf->data));
        if (!*end)
            return TD_OK;
    }
}

static td_status write_labels(const td__labels *l, const int *numbers, const char *dir)
{
    char path[PATH_BYTES], number[16];
    td__file_out f;

    TD_TRY(td__file_out_open(&f, path_of(path, dir, "labels.csv")));
    for (td__label *k = td__labels_next(l, NULL); k; k = td__labels_next(l, k)) {
        snprintf(number, sizeof number, "%d", numbers ? numbers[k->number] : k->number);
        td__csv_write(&f, number, k->text);
    }
    return td__file_out_commit(&f);
}

/* ---- commits ---- */

typedef struct row {
    td__labels *labels;
    const int *numbers;       /* of a version: the number there, by that of adding */
    const char *const *texts; /* of a version: the label, by its number in the commit */
    int n_texts;
    td__text ids, part; /* "1;2" */
} row;

static td_status add_id(row *r, const td__label *k)
{
    if (!k)
        return TD_FAIL(TD_ENOMEM, "data set: out of memory");
    td__text_printf(&r->ids, "%s%d", r->ids.used ? ";" : "",
                    r->numbers ? r->numbers[k->number] : k->number);
    return TD_OK;
}

static td_status add_label(void *arg, const char *label)
{
    row *r = arg;

    return add_id(r, td__labels_add(r->labels, label));
}

static td_status commit_rows(td__csv *c, row *r, td__file_out *f, const char *name, int64_t *n)
{
    while (td__csv_next(c)) {
        if (c->n_fields < 2)
            return TD_FAIL(TD_EINVAL, "%s:%d: a row has a text and its labels, this one %d field",
                           name, c->line, c->n_fields);
        td__text_clear(&r->ids);
        TD_TRY(each_part(td__csv_field(c, 1), &r->part, add_label, r));
        TD_TRY(td__text_status(&r->ids));
        td__csv_write(f, td__csv_field(c, 0), r->ids.data);
        ++*n;
    }
    return td__text_status(&c->row);
}

td_status td__intent_commit(const char *upload, const char *to, td__intent_counts *out)
{
    const char *name = strrchr(upload, '/') ? strrchr(upload, '/') + 1 : upload;
    char path[PATH_BYTES];
    td__labels labels = {0};
    row r = {.labels = &labels};
    td__file_map in;
    td__file_out f;
    td__csv csv;
    td_status st;

    *out = (td__intent_counts){0};
    TD_TRY(td__file_map_copy(&in, upload, MOST_BYTES));
    td__csv_init(&csv, in.data, in.nbytes);
    TD_TRY_OR(st, end, td__labels_init(&labels));
    TD_TRY_OR(st, end, td__file_out_open(&f, path_of(path, to, "examples.csv")));
    st = commit_rows(&csv, &r, &f, name, &out->examples);
    if (st)
        td__file_out_abandon(&f);
    else
        st = td__file_out_commit(&f);
    if (!st)
        st = write_labels(&labels, NULL, to);
    out->labels = labels.n;
end:
    td__text_fini(&r.ids);
    td__text_fini(&r.part);
    td__csv_fini(&csv);
    td__labels_fini(&labels);
    td__file_map_close(&in);
    return st;
}

/* ---- versions ---- */

typedef struct version {
    td__labels labels;
    td__arena *arena;
    const char ***texts; /* [commit][number]: its label */
    int *n_texts;
    int *numbers; /* by the number of adding: that in the version */
} version;

static td_status read_file(const char *dir, const char *name, td__file_map *in, td__csv *csv)
{
    char path[PATH_BYTES];

    TD_TRY(td__file_map_copy(in, path_of(path, dir, name), MOST_BYTES));
    td__csv_init(csv, in->data, in->nbytes);
    return TD_OK;
}

static bool number_of(const char *text, int most, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);

    *out = (int)n;
    return end != text && !*end && n >= 1 && n <= most;
}

static td_status read_labels(version *v, int commit, const char *dir)
{
    td__file_map in;
    td__csv csv;
    td_status st = TD_OK;
    int rows = 0, number;

    TD_TRY(read_file(dir, "labels.csv", &in, &csv));
    while (td__csv_next(&csv))
        rows++;
    v->n_texts[commit] = rows;
    v->texts[commit] = td__arena_alloc(v->arena, ((size_t)rows + 1) * sizeof(char *));
    td__csv_fini(&csv);
    td__csv_init(&csv, in.data, in.nbytes);
    while (!st && v->texts[commit] && td__csv_next(&csv)) {
        td__label *k = td__labels_add(&v->labels, td__csv_field(&csv, 1));

        if (!number_of(td__csv_field(&csv, 0), rows, &number))
            st = TD_FAIL(TD_EPROTO, "%s/labels.csv:%d: not a number of a label", dir, csv.line);
        else if (k)
            v->texts[commit][number] = k->text;
        else
            st = TD_FAIL(TD_ENOMEM, "data set: out of memory");
    }
    if (!st && (!v->texts[commit] || csv.row.failed))
        st = TD_FAIL(TD_ENOMEM, "data set: out of memory");
    td__csv_fini(&csv);
    td__file_map_close(&in);
    return st;
}

static td_status add_number(void *arg, const char *part)
{
    row *r = arg;
    int number;

    if (!number_of(part, r->n_texts, &number) || !r->texts[number])
        return TD_FAIL(TD_EPROTO, "examples.csv: there is no label %s", part);
    return add_id(r, td__labels_find(r->labels, r->texts[number]));
}

static td_status version_rows(version *v, int commit, const char *dir, td__file_out *f, int64_t *n)
{
    row r = {.labels = &v->labels,
             .numbers = v->numbers,
             .texts = v->texts[commit],
             .n_texts = v->n_texts[commit]};
    td__file_map in;
    td__csv csv;
    td_status st = TD_OK;

    TD_TRY(read_file(dir, "examples.csv", &in, &csv));
    while (!st && td__csv_next(&csv)) {
        td__text_clear(&r.ids);
        st = each_part(td__csv_field(&csv, 1), &r.part, add_number, &r);
        if (!st)
            st = td__text_status(&r.ids);
        if (!st)
            td__csv_write(f, td__csv_field(&csv, 0), r.ids.data);
        ++*n;
    }
    if (!st)
        st = td__text_status(&csv.row);
    td__text_fini(&r.ids);
    td__text_fini(&r.part);
    td__csv_fini(&csv);
    td__file_map_close(&in);
    return st;
}

static td_status number_labels(version *v)
{
    int n = 0;

    v->numbers = td__arena_alloc(v->arena, ((size_t)v->labels.n + 1) * sizeof(int));
    if (!v->numbers)
        return TD_FAIL(TD_ENOMEM, "data set: out of memory");
    for (td__label *k = td__labels_next(&v->labels, NULL); k; k = td__labels_next(&v->labels, k))
        v->numbers[k->number] = ++n;
    return TD_OK;
}

static td_status write_version(version *v, const char *const *commits, int n, const char *to,
                               td__intent_counts *out)
{
    char path[PATH_BYTES];
    td__file_out f;
    td_status st = TD_OK;

    for (int i = 0; i < n; i++)
        TD_TRY(read_labels(v, i, commits[i]));
    TD_TRY(number_labels(v));
    TD_TRY(td__file_out_open(&f, path_of(path, to, "examples.csv")));
    for (int i = 0; i < n && !st; i++)
        st = version_rows(v, i, commits[i], &f, &out->examples);
    if (st) {
        td__file_out_abandon(&f);
        return st;
    }
    TD_TRY(td__file_out_commit(&f));
    out->labels = v->labels.n;
    return write_labels(&v->labels, v->numbers, to);
}

td_status td__intent_version(const char *const *commits, int n, const char *to,
                             td__intent_counts *out)
{
    version v = {0};
    td_status st;

    *out = (td__intent_counts){0};
    TD_TRY_OR(st, end, td__labels_init(&v.labels));
    TD_TRY_OR(st, end, td__arena_create(&v.arena));
    v.texts = td__arena_alloc(v.arena, (size_t)n * sizeof *v.texts + 1);
    v.n_texts = td__arena_alloc(v.arena, (size_t)n * sizeof *v.n_texts + 1);
    st = v.texts && v.n_texts ? write_version(&v, commits, n, to, out)
                              : TD_FAIL(TD_ENOMEM, "data set: out of memory");
end:
    td__arena_destroy(v.arena);
    td__labels_fini(&v.labels);
    return st;
}
