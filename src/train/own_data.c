/* own_data.c -- see own_data.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/own_data.h"

#include <string.h>

#include "base/fail.h"
#include "data/partition.h"

static td__partition_mode mode_of(const char *name)
{
    int m = 0;
    while (m < TD_PARTITION_COUNT && strcmp(td__partition_name((td__partition_mode)m), name) != 0)
        m++;
    return (td__partition_mode)m;
}

static td_status check_weights(const td__train_opts *o, const td__sync_world *w,
                               const td__sync_traits *traits)
{
    int64_t sum = 0;
    int ranks = traits->shares ? traits->shares : w->ranks;
    if (w->elastic)
        return TD_FAIL(TD_EINVAL,
                       "data.partition: weighted not with elastic ranks, whose number changes: "
                       "start fixed ones, or use another partition");
    if (!o->n_weights || ranks > TD__PARTITION_WEIGHTS)
        return TD_FAIL(TD_EINVAL,
                       "data.partition: weighted needs data.weights, a number for each of up to %d "
                       "ranks",
                       TD__PARTITION_WEIGHTS);
    if (w->starts && o->n_weights != ranks)
        return TD_FAIL(TD_EINVAL, "data.weights: %d numbers for %d %s", o->n_weights, ranks,
                       traits->shares ? "workers" : "ranks");
    for (int i = 0; i < o->n_weights; i++)
        sum += o->weights[i];
    return sum > 0 ? TD_OK : TD_FAIL(TD_EINVAL, "data.weights: the numbers add up to 0");
}

td_status td__partition_check(const td__train_opts *o, const td__sync_world *w)
{
    const td__sync_ops *rule;
    if (!o->partition)
        return o->n_weights ? TD_FAIL(TD_EINVAL, "data.weights: for data.partition weighted only")
                            : TD_OK;
    td__partition_mode mode = mode_of(o->partition);
    if (mode == TD_PARTITION_COUNT)
        return TD_FAIL(TD_EINVAL, "data.partition: unknown partition '%s'", o->partition);
    TD_TRY(td__sync_find(&o->sync, w, &rule));
    td__sync_traits traits = td__sync_traits_of(&o->sync, w);
    if (!traits.own_data)
        return TD_FAIL(TD_EINVAL,
                       "data.partition: not with the sync rule %s, whose ranks share one order of "
                       "samples; name one of local updates in train.sync",
                       rule->name);
    if (mode == TD_PARTITION_WEIGHTED)
        return check_weights(o, w, &traits);
    return o->n_weights ? TD_FAIL(TD_EINVAL, "data.weights: for data.partition weighted only")
                        : TD_OK;
}

void td__partition_set(const td__train_opts *o, const td__sync_traits *traits, int rank, int ranks,
                       double weights[TD__PARTITION_WEIGHTS], td__loader_opts *out)
{
    if (traits->shares) { /* whose batches are their own: nobody else has rows of them */
        rank = traits->share;
        ranks = traits->shares;
        out->others = o->partition ? NULL : out->others;
    }
    if (!o->partition || ranks < 2 || rank < 0)
        return;
    out->in_step = true;
    out->partition = (td__partition){
        .mode = mode_of(o->partition), .worker = rank, .workers = ranks, .weights = weights};
    for (int i = 0; i < ranks && i < TD__PARTITION_WEIGHTS; i++)
        weights[i] = i < o->n_weights ? (double)o->weights[i] : 0;
}
