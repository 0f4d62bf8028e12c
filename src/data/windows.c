/* windows.c -- samples cut from long runs of tokens; see windows.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/windows.h"

#include <inttypes.h>

#include "base/fail.h"

enum { DEFAULT_CONTEXT = 64, MAX_CONTEXT = 1 << 24 };

typedef struct windows {
    td__dataset head;
    int64_t context, stride;
    int width;
    td__run *runs;
    int n_runs;
    td__arena *arena;
} windows;

static void windows_destroy(td__dataset *d)
{
    windows *w = (windows *)d;

    for (int r = 0; r < w->n_runs; r++)
        td__file_map_close(&w->runs[r].map);
    td__arena_destroy(w->arena);
    td__free(w);
}

/* The run that holds a window: the last that begins at or before it. */
static const td__run *find_run(const windows *w, int64_t window)
{
    int lo = 0, hi = w->n_runs - 1;

    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;
        if (w->runs[mid].first <= window)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &w->runs[lo];
}

static void widen(int32_t *restrict y, const void *tokens, int width, int64_t begin, int64_t n)
{
    if (width == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = ((const uint8_t *)tokens)[begin + i];
    else if (width == 2)
        for (int64_t i = 0; i < n; i++)
            y[i] = ((const uint16_t *)tokens)[begin + i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = ((const int32_t *)tokens)[begin + i];
}

static td_status windows_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                              void *const *out)
{
    const windows *w = (const windows *)d;
    int32_t *x = out[0], *y = out[1]; /* (n, context) */

    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        const td__run *run = find_run(w, index[i]);
        int64_t begin = (index[i] - run->first) * w->stride;
        widen(x + i * w->context, run->tokens, w->width, begin, w->context);
        widen(y + i * w->context, run->tokens, w->width, begin + 1, w->context);
    }
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = windows_destroy, .read = windows_read};

td_status td__windows_create(const char *source, const td__windows_opts *o, td__run *runs,
                             int n_runs, td__dataset **out)
{
    int64_t context = o->context ? o->context : DEFAULT_CONTEXT, count = 0, tokens = 0;
    int64_t stride = o->stride ? o->stride : context;

    *out = NULL;
    if (context < 1 || context > MAX_CONTEXT || stride < 1 || stride > MAX_CONTEXT)
        return TD_FAIL(TD_EINVAL, "%s: context %" PRId64 ", stride %" PRId64 ": expected 1 to %d",
                       source, context, stride, MAX_CONTEXT);
    for (int r = 0; r < n_runs; r++) {
        runs[r].first = count;
        tokens += runs[r].count;
        if (runs[r].count > context)
            count += (runs[r].count - 1 - context) / stride + 1;
    }
    if (count == 0)
        return TD_FAIL(TD_EINVAL,
                       "%s: %" PRId64 " tokens are too few for a sample of context %" PRId64,
                       source, tokens, context);
    windows *w = td__calloc(1, sizeof *w);
    if (!w)
        return TD_FAIL(TD_ENOMEM, "no memory for %s", source);
    td__field x = {.name = "x",
                   .dtype = TD_I32,
                   .shape = TD_SHAPE(context),
                   .classes = o->vocab,
                   .class_names = o->names};
    td__field y = x;
    y.name[0] = 'y';
    w->head = (td__dataset){.ops = &OPS,
                            .count = count,
                            .n_fields = 2,
                            .fields = {x, y},
                            .in_order = true,
                            .gap = context / stride};
    w->context = context;
    w->stride = stride;
    w->width = o->width;
    w->runs = runs;
    w->n_runs = n_runs;
    w->arena = o->arena;
    *out = &w->head;
    return TD_OK;
}
