/* kept.c -- samples that are kept as blocks (data.blocks): when they are, and what does not go with
 * that. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "graph/params.h"
#include "train/trainer_impl.h"

static bool asked(const td__train_opts *o)
{
    return o->blocks_device || o->blocks_host || o->blocks_file;
}

td_status td__kept_check(const td__train_opts *o, const td__sync_world *w)
{
    const td__sync_ops *rule;

    if (!asked(o))
        return TD_OK;
    if (!o->blocks_host)
        return TD_FAIL(TD_EINVAL, "data.blocks: device_mb and file_mb need host_mb, where samples "
                                  "come in");
    if (o->partition && strcmp(o->partition, "features") == 0)
        return TD_FAIL(TD_EINVAL,
                       "data.blocks: not with data.partition: features, where ranks have "
                       "parts of samples");
    TD_TRY(td__sync_find(&o->sync, w, &rule));
    return rule->reads_batches ? TD_FAIL(TD_EINVAL,
                                         "data.blocks: not with the sync rule %s, which reads the "
                                         "samples of batches itself",
                                         rule->name)
                               : TD_OK;
}

td_status td__train_keep_samples(td__trainer *t)
{
    const td__train_opts *o = &t->o;
    const size_t level[TD_BLOCK_LEVELS] = {[TD_BLOCK_DEVICE] = o->blocks_device,
                                           [TD_BLOCK_HOST] = o->blocks_host,
                                           [TD_BLOCK_FILE] = o->blocks_file};

    if (!asked(o) || t->run.kept)
        return TD_OK;
    if (td__data_draws(t->plan.data))
        return TD_FAIL(TD_EINVAL, "data.blocks: not with samples that change every epoch (random "
                                  "augmentation in data.maps, data.resize: random, datasets of a "
                                  "program); data.cache keeps samples before such stages");
    if (t->plan.facts.n_tables)
        return TD_FAIL(TD_EINVAL,
                       "data.blocks: not with table %s on servers, whose ids the host "
                       "reads",
                       t->plan.facts.table[0].param);
    const td__dataset *d = td__data_part(t->plan.data, TD_PART_TRAIN);
    if (o->untrained)
        return td__kept_samples_check(d, level);
    TD_TRY(td__kept_samples_create(d, td__params_device(t->replica.params), level, &t->run.kept));
    /* Batches hold their samples from when they are prepared until the next one is used. */
    int64_t ahead = o->prefetch > 0 ? o->prefetch + 1 : 1;
    int64_t rows = ahead * o->batch / td__trainer_ranks(t);
    int64_t room = td__kept_samples_room(t->run.kept);
    if (room < rows && room < d->count)
        TD_LOG(WARN, TRAIN,
               "data.blocks.host_mb has room for %lld samples, and the batches that "
               "are prepared ahead have %lld: most will not be kept",
               (long long)room, (long long)rows);
    return TD_OK;
}
