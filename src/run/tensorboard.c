/* tensorboard.c -- event files for TensorBoard.
 *
 * A file is a row of TFRecords, little-endian:
 *
 *     u64 length | u32 masked crc32c of the length | the bytes | u32 masked crc32c of the bytes
 *     masked(c) = rotate right(c, 15) + 0xa282ead8
 *
 * The bytes are Event protobufs (wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four
 * bytes), of which few fields are needed:
 *
 *     Event       1 wall_time (double)  2 step (varint)  3 file_version (string)
 *                 4 graph_def (bytes)   5 summary (Summary)   7 session_log (SessionLog)
 *     Summary     1 value (Summary.Value, any number)
 *     Value       1 tag (string)        2 simple_value (float)  5 histo (HistogramProto)
 *     HistogramProto  1 min  2 max  3 num  4 sum  5 sum_squares  6 bucket_limit  7 bucket (all
 *                 doubles; the last two packed, a limit is the upper end of its bucket)
 *     SessionLog  1 status (varint; 1 is START)
 *
 * The first event has file_version alone. A resumed run writes a further file that begins with a
 * session START at its first step: TensorBoard then forgets later steps of the files before. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/date.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/wire.h"
#include "graph/draw.h"
#include "run/append_file.h"
#include "run/run_dir.h"

enum { MASK_DELTA = (int)0xa282ead8u, MOST_FILES = 10000, MOST_RANKS = 64 };
/* Of a histogram; of a large param it is of elements at equal distances, RUN of them each time. */
enum { BUCKETS = 30, MOST_ELEMENTS = 1 << 16, RUN = 256 };

typedef struct tensorboard {
    td__observer observer;
    td__append_file file;
    td__text event, summary, value, record; /* bytes, not characters */
    td__text histogram;
    const td_params *params; /* of histograms; NULL: there are none */
    float *elements;         /* (MOST_ELEMENTS) own */
} tensorboard;

static uint32_t masked_crc(const void *data, size_t nbytes)
{
    uint32_t c = td__crc32c(0, data, nbytes);
    return (c >> 15 | c << 17) + (uint32_t)MASK_DELTA;
}

static void begin_event(tensorboard *b, uint64_t step)
{
    double seconds = td__unix_time();
    uint64_t bits;

    memcpy(&bits, &seconds, sizeof bits);
    td__text_clear(&b->event);
    td__text_clear(&b->summary);
    td__wire_key(&b->event, 1, TD_WIRE_FIXED64);
    td__wire_little(&b->event, bits, sizeof bits);
    if (step) {
        td__wire_key(&b->event, 2, TD_WIRE_VARINT);
        td__wire_varint(&b->event, step);
    }
}

static void add_scalar(tensorboard *b, const char *group, const char *name, double v)
{
    char tag[128];
    uint32_t bits;
    float f = (float)v;

    snprintf(tag, sizeof tag, "%s/%s", group, name);
    memcpy(&bits, &f, sizeof bits);
    td__text_clear(&b->value);
    td__wire_bytes(&b->value, 1, tag, strlen(tag));
    td__wire_key(&b->value, 2, TD_WIRE_FIXED32);
    td__wire_little(&b->value, bits, sizeof bits);
    td__wire_bytes(&b->summary, 1, b->value.data, b->value.used);
}

/* The event as one record, in one write. */
static td_status end_event(tensorboard *b)
{
    td__text *r = &b->record;

    if (b->summary.used)
        td__wire_bytes(&b->event, 5, b->summary.data, b->summary.used);
    TD_TRY(td__text_status(&b->event));
    TD_TRY(td__text_status(&b->value));
    TD_TRY(td__text_status(&b->summary));
    td__text_clear(r);
    td__wire_little(r, b->event.used, 8);
    TD_TRY(td__text_status(r));
    td__wire_little(r, masked_crc(r->data, 8), 4);
    td__text_append(r, b->event.data, b->event.used);
    td__wire_little(r, masked_crc(b->event.data, b->event.used), 4);
    TD_TRY(td__text_status(r));
    return td__append_write(&b->file, r->data, r->used);
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    tensorboard *b = (tensorboard *)o;

    begin_event(b, e->step);
    add_scalar(b, "train", "loss", e->loss);
    add_scalar(b, "train", "lr", e->lr);
    if (e->grad_norm >= 0)
        add_scalar(b, "train", "grad_norm", e->grad_norm);
    if (e->seconds > 0)
        add_scalar(b, "train", "samples_per_second", (double)e->samples / e->seconds);
    return end_event(b);
}

/* ---- Graph and histograms -------------------------------------------------------------------- */

static void add_double(td__text *t, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    td__wire_little(t, bits, sizeof bits);
}

static void add_histogram(tensorboard *b, const char *name, const float *v, size_t n)
{
    double lo = INFINITY, hi = -INFINITY, sum = 0, squares = 0, count[BUCKETS] = {0};
    char tag[256];

    for (size_t i = 0; i < n; i++) {
        lo = fmin(lo, (double)v[i]);
        hi = fmax(hi, (double)v[i]);
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    if (!n || !isfinite(sum))
        return;
    double width = hi > lo ? (hi - lo) / BUCKETS : 0;
    for (size_t i = 0; i < n; i++) {
        int k = width > 0 ? (int)(((double)v[i] - lo) / width) : 0;
        count[k < BUCKETS ? k : BUCKETS - 1]++;
    }
    int used = width > 0 ? BUCKETS : 1;
    const double head[] = {lo, hi, (double)n, sum, squares};
    td__text_clear(&b->histogram);
    for (unsigned i = 0; i < sizeof head / sizeof head[0]; i++) {
        td__wire_key(&b->histogram, i + 1, TD_WIRE_FIXED64);
        add_double(&b->histogram, head[i]);
    }
    for (unsigned field = 6; field <= 7; field++) {
        td__wire_key(&b->histogram, field, TD_WIRE_BYTES);
        td__wire_varint(&b->histogram, (uint64_t)used * sizeof(double));
        for (int k = 0; k < used; k++)
            add_double(&b->histogram, field == 7     ? count[k]
                                      : k + 1 < used ? lo + width * (k + 1)
                                                     : hi);
    }
    snprintf(tag, sizeof tag, "params/%s", name);
    td__text_clear(&b->value);
    td__wire_text(&b->value, 1, tag);
    td__wire_part(&b->value, 5, &b->histogram);
    td__wire_part(&b->summary, 1, &b->value);
}

/* Some elements of a param, or all. */
static td_status read_elements(const td_params *ps, const td_param_info *p, float *v, size_t *n)
{
    size_t runs = MOST_ELEMENTS / RUN;

    if (p->count <= MOST_ELEMENTS) {
        *n = p->count;
        return td_params_read(ps, p->offset, p->count, v);
    }
    for (size_t i = 0; i < runs; i++)
        TD_TRY(td_params_read(ps, p->offset + (p->count - RUN) / (runs - 1) * i, RUN, v + i * RUN));
    *n = MOST_ELEMENTS;
    return TD_OK;
}

static td_status write_histograms(tensorboard *b, uint64_t step)
{
    if (!b->params)
        return TD_OK;
    begin_event(b, step);
    for (int i = 0; i < td_params_count(b->params); i++) {
        td_param_info p = td_params_info(b->params, i);
        size_t n;
        if (p.is_state)
            continue;
        TD_TRY(read_elements(b->params, &p, b->elements, &n));
        add_histogram(b, p.name, b->elements, n);
    }
    return end_event(b);
}

td_status td__tensorboard_model(td__observer *o, const td_graph *g, const td_params *ps)
{
    tensorboard *b = (tensorboard *)o;
    td__text def = {0};

    if (!b->elements)
        b->elements = td__calloc(MOST_ELEMENTS, sizeof *b->elements);
    if (!b->elements)
        return TD_FAIL(TD_ENOMEM, "no memory for TensorBoard files");
    b->params = ps;
    if (!g)
        return TD_OK;
    td__graph_def(&def, g);
    td_status st = td__text_status(&def);
    if (!st) {
        begin_event(b, 0);
        td__wire_part(&b->event, 4, &def);
        st = end_event(b);
    }
    td__text_fini(&def);
    return st;
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    tensorboard *b = (tensorboard *)o;

    begin_event(b, e->step);
    for (int i = 0; i < e->n; i++)
        add_scalar(b, e->part, e->name[i], e->value[i]);
    TD_TRY(end_event(b));
    return strcmp(e->part, "valid") == 0 ? write_histograms(b, e->step) : TD_OK;
}

/* Shares of the time per rank, and megabytes a step. */
static td_status on_ranks(td__observer *o, const td__ranks_event *e)
{
    tensorboard *b = (tensorboard *)o;
    char group[32];

    if (e->n == 1)
        return TD_OK;
    begin_event(b, e->step);
    for (int r = 0; r < e->n && r < MOST_RANKS; r++) {
        const td__rank_times *t = &e->rank[r];
        double seconds = t->seconds > 0 ? t->seconds : 1;
        snprintf(group, sizeof group, "rank%d", r);
        add_scalar(b, group, "compute", t->compute / seconds);
        add_scalar(b, group, "comm", t->comm / seconds);
        add_scalar(b, group, "wait", t->wait / seconds);
        add_scalar(b, group, "mb_per_step", t->nbytes * 1e-6 / (double)e->steps);
    }
    return end_event(b);
}

/* A name that no run before has taken: files sort by time, resumes within a second by number. */
static td_status open_file(tensorboard *b, const char *dir)
{
    char host[64] = "", name[160], path[TD__PATH];

    if (gethostname(host, sizeof host - 1) != 0 || !*host)
        snprintf(host, sizeof host, "localhost");
    for (int i = 0; i < MOST_FILES; i++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010jd.%s.%jd.%d", (intmax_t)time(NULL),
                 host, (intmax_t)getpid(), i);
        TD_TRY(td__run_dir_path(dir, name, path));
        if (access(path, F_OK) != 0)
            return td__append_open(&b->file, dir, name, 0);
    }
    return TD_FAIL(TD_EINVAL, "%s has too many TensorBoard files", dir);
}

static td_status write_head(tensorboard *b, uint64_t from_step)
{
    static const char VERSION[] = "brain.Event:2", START[] = {1 << 3 | TD_WIRE_VARINT, 1};

    begin_event(b, 0);
    td__wire_bytes(&b->event, 3, VERSION, sizeof VERSION - 1);
    TD_TRY(end_event(b));
    if (from_step) {
        begin_event(b, from_step + 1);
        td__wire_bytes(&b->event, 7, START, sizeof START);
        TD_TRY(end_event(b));
    }
    return TD_OK;
}

td_status td__tensorboard_create(const char *dir, uint64_t from_step, bool holds,
                                 td__observer **out)
{
    tensorboard *b = td__calloc(1, sizeof *b);

    *out = NULL;
    if (!b)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for TensorBoard files", dir);
    b->observer = (td__observer){.step = on_step, .eval = on_eval, .ranks = on_ranks};
    b->file.fd = -1;
    td_status st = open_file(b, dir);
    b->file.holds = holds;
    if (!st)
        st = write_head(b, from_step);
    if (st) {
        td__tensorboard_destroy(&b->observer);
        return st;
    }
    *out = &b->observer;
    return TD_OK;
}

void td__tensorboard_destroy(td__observer *o)
{
    tensorboard *b = (tensorboard *)o;
    if (!b)
        return;
    td__append_close(&b->file);
    td__text_fini(&b->event);
    td__text_fini(&b->summary);
    td__text_fini(&b->value);
    td__text_fini(&b->histogram);
    td__free(b->elements);
    td__text_fini(&b->record);
    td__free(b);
}
