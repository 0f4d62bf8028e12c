/* pipeline_view.c -- the samples of a td_dataset for those who work with td__dataset. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "data/pipeline.h"

typedef struct view {
    td__dataset head;
    td_dataset *of;
} view;

static void view_destroy(td__dataset *d)
{
    view *v = (view *)d;

    td_dataset_destroy(v->of);
    td__free(v);
}

static td_status view_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                           void *const *out)
{
    const view *v = (const view *)d;
    return td__dataset_read(v->of->samples, index, n, draw, out);
}

static td_status view_read_field(td__dataset *d, int field, const int64_t *index, int64_t n,
                                 void *out)
{
    return td__dataset_read_field(((const view *)d)->of->samples, field, index, n, out);
}

static const char *view_name(const td__dataset *d, int64_t i)
{
    return td__dataset_name(((const view *)d)->of->samples, i);
}

static const td__dataset_ops OPS = {
    .destroy = view_destroy, .read = view_read, .read_field = view_read_field, .name = view_name};

td_status td__pipeline_view(td_dataset *of, td__dataset **out)
{
    view *v = td__calloc(1, sizeof *v);

    *out = NULL;
    if (!v)
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    v->head = *of->samples;
    v->head.ops = &OPS;
    v->of = td__pipeline_retain(of);
    *out = &v->head;
    return TD_OK;
}
