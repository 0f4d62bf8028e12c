/* params_fold.c -- running averages: statistics of a step folded into the states of a program. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/params.h"
#include "graph/program_impl.h"

enum { AT_ONCE = 64 }; /* under way at a time: waiting for each would take longer than it does */

typedef struct folding {
    td_params *ps;
    const td_program *p;
    const int *info_of;
} folding;

/* Of the param or state of slot i. */
static const td_param_info *info_at(const folding *f, int i)
{
    return &f->ps->info[f->info_of ? f->info_of[i]
                                   : td_params_find(f->ps, f->p->slots[i].leaf->name)];
}

/* Is slot k a state of the same weight that lies right behind the `count` numbers that begin with
 * state i, so that one blend does for them all? */
static bool follows(const folding *f, int i, size_t count, int k)
{
    const td__slot *a = &f->p->slots[i], *b = &f->p->slots[k];
    return b->is_state && (float)b->weight == (float)a->weight &&
           info_at(f, k)->offset == info_at(f, i)->offset + count;
}

void td__params_fold(td_params *ps, const td_program *p, const int *info_of, const float *grads)
{
    td_stream *on = td__device_stream(td__params_device(ps));
    folding f = {ps, p, info_of};
    td__blend_op folds[AT_ONCE];
    int n = 0;
    for (int i = 0, next; i < p->n_slots; i = next) {
        const td__slot *slot = &p->slots[i];
        next = i + 1;
        if (!slot->is_state || !(slot->weight > 0))
            continue;
        const td_param_info *info = info_at(&f, i);
        size_t count = info->count;
        float w = (float)slot->weight;
        while (next < p->n_slots && follows(&f, i, count, next))
            count += info_at(&f, next++)->count;
        if (n == AT_ONCE) {
            td__stream_drain(on);
            n = 0;
        }
        folds[n] = (td__blend_op){ps->block + info->offset,
                                  grads + ps->dense + (info->offset - ps->trainable), 1 - w, w};
        td__stream_blend(on, &folds[n++], 1, 0, count);
    }
    if (n)
        td__stream_drain(on);
    td_params_touch(ps);
}
