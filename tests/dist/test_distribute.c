/* Data that rank 0 alone has files of: every sample of every part, drawn or not, has on every rank
 * the bits that it has where the files are; for any number of ranks, any method and transport. What
 * rank 0 cannot open nobody can, for the same reason, and a rank that goes takes nobody with it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "parallel/distribute/distribute.h"
#include "support/check.h"
#include "support/ranks.h"

enum { ROWS = 97, MOST_RANKS = 5 };

static const td__map_opts MEASURED[] = {{.name = "normalize", .field = "x"}};
static const td__map_opts DRAWN[] = {{.name = "crop", .field = "x", .size = 20},
                                     {.name = "flip", .field = "x"},
                                     {.name = "normalize", .field = "x"}};

typedef struct job {
    const char *name;
    td__data_opts opts;
    const char *method, *cache;
    int victim; /* rank that goes; 0: none */
    td_status want;
    const char *text; /* of the failure that all report */
} job;

/* Files for rank 0: a csv with names of classes, a text whose samples overlap. */
static const char *files; /* where they are */

static void write_files(void)
{
    files = check_tmpdir();
    FILE *f = fopen(check_path("train.csv"), "w");
    assert_non_null(f);
    fputs("a,b,kind\n", f);
    for (int i = 0; i < ROWS; i++)
        fprintf(f, "%d.5,%d,%s\n", i * 7 % 31, i * i % 17,
                i % 3 ? i % 3 > 1 ? "cat" : "dog" : "ant");
    fclose(f);
    f = fopen(check_path("train.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < 900; i++)
        fputc("abcdefgh \n"[i * i % 10], f);
    fclose(f);
}

static const job JOBS[] = {
    {.name = "csv",
     .opts = {.source = "csv",
              .source_opts = {.train = "train.csv", .label = "kind"},
              .valid_fraction = 0.2,
              .test_fraction = 0.1,
              .maps = MEASURED,
              .n_maps = 1,
              .seed = 5}},
    {.name = "text",
     .opts = {.source = "text",
              .source_opts = {.train = "train.txt", .context = 8, .stride = 3},
              .valid_fraction = 0.2,
              .seed = 5}},
    {.name = "digits",
     .opts = {.source = "digits",
              .source_opts = {.count = 60, .seed = 3},
              .valid_fraction = 0.2,
              .maps = DRAWN,
              .n_maps = 3,
              .seed = 5}},
};

/* Rank 0 is where the files are, the others where there are none. */
static td__data_opts opts_of(const job *j, int rank)
{
    td__data_opts o = j->opts;
    if (strcmp(o.source, "digits") != 0)
        o.source_opts.dir = rank ? "/nonexistent" : files;
    o.cache = j->cache;
    return o;
}

static bool same_head(const td__dataset *a, const td__dataset *b)
{
    if (a->count != b->count || a->n_fields != b->n_fields || a->in_order != b->in_order ||
        a->gap != b->gap)
        return false;
    for (int f = 0; f < a->n_fields; f++) {
        const td__field *x = &a->fields[f], *y = &b->fields[f];
        if (strcmp(x->name, y->name) != 0 || x->dtype != y->dtype || x->classes != y->classes ||
            !td_shape_equal(&x->shape, &y->shape) || !x->class_names != !y->class_names)
            return false;
        for (int64_t c = 0; x->class_names && c < x->classes; c++)
            if (strcmp(x->class_names[c], y->class_names[c]) != 0)
                return false;
    }
    return true;
}

/* All samples, backwards and some at a time, equal? */
static bool same_samples(td__dataset *a, td__dataset *b, const td__draw *draw)
{
    enum { FEW = 7 };
    void *x[TD__MAX_FIELDS], *y[TD__MAX_FIELDS];
    bool same = true;
    for (int f = 0; f < a->n_fields; f++) {
        x[f] = calloc(FEW, td__field_nbytes(&a->fields[f]) + 1);
        y[f] = calloc(FEW, td__field_nbytes(&a->fields[f]) + 1);
    }
    for (int64_t i = a->count - 1; i >= 0 && same; i -= FEW) {
        int64_t index[FEW], n = 0;
        for (; n < FEW && i - n >= 0; n++)
            index[n] = i - n;
        same = !td__dataset_read(a, index, n, draw, x) && !td__dataset_read(b, index, n, draw, y);
        for (int f = 0; f < a->n_fields && same; f++)
            same = memcmp(x[f], y[f], td__field_nbytes(&a->fields[f]) * (size_t)n) == 0;
    }
    for (int f = 0; f < a->n_fields; f++) {
        free(x[f]);
        free(y[f]);
    }
    return same;
}

static void same_body(ranks_ctx *r)
{
    const job *j = r->arg;
    td__data_opts mine = opts_of(j, r->rank), there = opts_of(j, 0);
    td__distribute_opts o = {.method = j->method, .comm = r->comm, .block = 1000};
    const td__draw draw = {.seed = 11, .epoch = 2};
    td__distribution *keep = NULL;
    td__data *got = NULL, *want = NULL;
    const char *wrong = NULL;

    RANK_OK(r, td__distribute_open(&mine, &o, &keep, &got));
    RANK_OK(r, td__data_open(&there, &want));
    for (int p = 0; p < TD_PART_COUNT && !wrong; p++) {
        td__dataset *a = td__data_part(got, (td__part)p), *b = td__data_part(want, (td__part)p);
        if (!a != !b || (a && !same_head(a, b)))
            wrong = "fields";
        else if (a && (!same_samples(a, b, NULL) || !same_samples(a, b, &draw)))
            wrong = "samples";
    }
    td_status st = td_barrier(r->comm, NULL); /* rank 0 does not wait for long */
    td__distribute_close(keep);
    td__data_close(got);
    td__data_close(want);
    RANK_OK(r, st);
    RANK_CHECK(r, !wrong, "%s by %s on %d ranks: other %s than where the files are", j->name,
               j->method, r->size, wrong);
}

TEST(every_rank_has_the_bits_of_the_files)
{
    static const char *const TRANSPORTS[] = {"inproc", "shm", "tcp"};
    write_files();
    for (int k = 0; k < TD_LEN(JOBS); k++)
        for (int m = 0; td__distribute_list(m); m++)
            for (int n = 1; n <= MOST_RANKS; n++) {
                job j = JOBS[k];
                j.method = td__distribute_list(m);
                if (m == 0 && strcmp(j.name, "digits") != 0)
                    continue; /* files on every rank */
                j.cache = n % 2 ? "memory" : NULL;
                for (int t = 0; t < (k == 0 || n == 3 ? TD_LEN(TRANSPORTS) : 1); t++)
                    ranks_run(n, &(ranks_opts){.transport = TRANSPORTS[t]}, same_body, &j);
            }
    check_tmpdir_remove();
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void fail_body(ranks_ctx *r)
{
    const job *j = r->arg;
    td__data_opts mine = opts_of(j, r->rank);
    td__distribute_opts o = {.method = j->method, .comm = r->comm, .block = 1000};
    td__distribution *keep;
    td__data *got;

    RANK_STATUS(r, td__distribute_open(&mine, &o, &keep, &got), j->want);
    RANK_CHECK(r, strstr(td_last_error(), j->text), "%s by %s: rank %d says '%s'", j->name,
               j->method, r->rank, td_last_error());
    RANK_CHECK(r, !keep && !got, "something is left");
}

TEST(what_rank_0_cannot_open_nobody_can)
{
    write_files();
    check_write_file(check_path("bad.csv"), "a,b,kind\n1,2,dog\n3\n", 19);
    for (int m = 1; td__distribute_list(m); m++)
        for (int kind = 0; kind < 3; kind++) {
            job j = JOBS[0];
            j.method = td__distribute_list(m);
            j.want = TD_EINVAL;
            if (kind == 0) {
                j.opts.source_opts.train = "missing.csv";
                j.text = "missing.csv";
            } else if (kind == 1) {
                j.opts.source_opts.train = "bad.csv";
                j.want = TD_EPROTO;
                j.text = "bad.csv";
            } else { /* the train part is fine */
                j.opts.source_opts.valid = "no-valid.csv";
                j.text = "no-valid.csv";
            }
            ranks_run(3, NULL, fail_body, &j);
        }
    check_tmpdir_remove();
}

/* A rank that goes before its samples have come. */
static void gone_body(ranks_ctx *r)
{
    const job *j = r->arg;
    td__data_opts mine = opts_of(j, r->rank);
    td__distribute_opts o = {.method = j->method, .comm = r->comm, .block = 64};
    td__distribution *keep = NULL;
    td__data *got = NULL;

    td_status st = td_barrier(r->comm, NULL); /* all have met */
    if (r->rank == j->victim) {
        td_comm_abort(r->comm, "a rank went away");
        return;
    }
    if (!st)
        st = td__distribute_open(&mine, &o, &keep, &got);
    if (!st) /* a sender may be done before it hears of it */
        st = td_barrier(r->comm, NULL);
    char text[512];
    snprintf(text, sizeof text, "%s", td_last_error());
    td__distribute_close(keep);
    td__data_close(got);
    RANK_CHECK(r, st == TD_EPEER, "%s: rank %d: %s (%s)", j->method, r->rank, td_status_name(st),
               text);
    RANK_CHECK(r, strstr(text, "went away"), "%s: rank %d says '%s'", j->method, r->rank, text);
}

TEST(a_rank_that_goes_is_an_error_for_all)
{
    write_files();
    for (int m = 1; td__distribute_list(m); m++)
        for (int victim = 1; victim < 4; victim += 2) {
            job j = JOBS[0];
            j.method = td__distribute_list(m);
            j.victim = victim;
            ranks_run(4, &(ranks_opts){.transport = "tcp"}, gone_body, &j);
        }
    check_tmpdir_remove();
}

/* Samples that cannot be read are found out while they travel. */
typedef struct broken {
    td__dataset head;
    int64_t bad;
} broken;

static void broken_destroy(td__dataset *d)
{
    (void)d;
}

static td_status broken_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    const broken *b = (const broken *)d;
    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        if (index[i] == b->bad)
            return TD_EIO;
        ((int32_t *)out[0])[i] = (int32_t)index[i];
    }
    return TD_OK;
}

static const td__dataset_ops BROKEN = {.destroy = broken_destroy, .read = broken_read};

static void broken_body(ranks_ctx *r)
{
    const td__distribute_def *method = r->arg;
    broken b = {.head = {.ops = &BROKEN,
                         .count = 1000,
                         .n_fields = 1,
                         .fields = {{.name = "x", .dtype = TD_I32}}},
                .bad = 700};
    td__distribute_opts o = {0};
    td__table *table = NULL;
    td__spread s = {.comm = r->comm,
                    .rank = r->rank,
                    .size = r->size,
                    .from = &b.head,
                    .head = &b.head,
                    .rows = 10,
                    .blocks = 100,
                    .nbytes = 4,
                    .part = "train",
                    .o = &o};
    RANK_OK(r, td__table_create(1000, &table));
    td_status st = td__table_add(table, &b.head.fields[0]);
    s.to = table;
    if (!st)
        st = method->spread(&s);
    if (st) /* as the caller does */
        td_comm_abort(r->comm, "bad sample");
    td__table_destroy(table);
    RANK_CHECK(r, r->rank ? st == TD_EPEER : st == TD_EIO, "%s: rank %d: %s", method->name, r->rank,
               td_status_name(st));
}

TEST(a_sample_that_cannot_be_read)
{
    static const td__distribute_def *const WHOLE[] = {
        &td__distribute_broadcast, &td__distribute_chain, &td__distribute_all_gather};
    for (int i = 0; i < TD_LEN(WHOLE); i++)
        ranks_run(4, NULL, broken_body, (void *)(uintptr_t)WHOLE[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_the_bits_of_the_files),
        cmocka_unit_test(what_rank_0_cannot_open_nobody_can),
        cmocka_unit_test(a_rank_that_goes_is_an_error_for_all),
        cmocka_unit_test(a_sample_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
