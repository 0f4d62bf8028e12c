/* micro_batch_count.c -- see micro_batch_count.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/micro_batch_count.h"

#include "base/fail.h"
#include "graph/cost.h"
#include "tandem/graph.h"

int td__micro_batch_count(int64_t batch, double uses, bool gpu)
{
    int64_t rows = gpu ? INT64_MAX : TD__MICRO_BATCH_ROWS;
    double least = gpu ? TD__MICRO_BATCH_GPU_USES : TD__MICRO_BATCH_USES;
    int micro_batches = 1;
    while (micro_batches < TD__MICRO_BATCHES_MOST) {
        int64_t half =
            batch / (2 * (int64_t)micro_batches); /* rows of a micro-batch, if halved once more */
        if (half < 1)
            break;
        if (micro_batches > 1 && half < rows && (double)half * uses < least)
            break;
        micro_batches *= 2;
    }
    return micro_batches;
}

/* Uses by one row, from the arithmetic of forward. Few rows are enough to see: counts are in
 * proportion. */
static td_status uses_of(const td__model *m, td_graph *g, double *out)
{
    enum { ROWS = 2 };
    td__model_nodes nodes = {0};
    TD_TRY(m->build(m->user, g, ROWS, &nodes));
    if (td_graph_status(g))
        return TD_FAIL(td_graph_status(g), "%s", td_graph_error(g));
    td__cost c = td__graph_cost(g, 0, td_graph_node_count(g));
    *out = c.weights > 0 ? c.flops / (2 * c.weights * ROWS) : 1;
    return TD_OK;
}

td_status td__micro_batch_count_of(const td__model *m, int64_t batch, bool gpu, int *out)
{
    td_graph *g;
    double uses;
    TD_TRY(td_graph_create(&g));
    td_status st = uses_of(m, g, &uses);
    td_graph_destroy(g);
    if (!st)
        *out = td__micro_batch_count(batch, uses, gpu);
    return st;
}

int td__micro_batches_for(int64_t batch, int count, int ranks)
{
    int64_t least = count > ranks ? count : ranks;
    for (int even = 1; even >= 0; even--) /* with the same number for each rank, or without */
        for (int64_t v = least; v <= batch && v <= TD__MICRO_BATCHES_MOST + ranks; v++)
            if (batch % v == 0 && (!even || v % ranks == 0))
                return (int)v;
    return (int)(least < batch ? least : batch);
}
