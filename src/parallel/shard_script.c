/* shard_script.c -- see shard_script.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/shard_script.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "graph/walk.h"

enum { NEVER = 1 << 30, BUCKETS_KEPT = 2 };

typedef struct writer {
    td__shard_script *s;
    const td__ownership *m;
    const td__param_use *uses;
    int n_uses, steps;
    int *last;  /* by bucket: the step that makes its gradients final; steps - 1 if none does */
    bool *here; /* by bucket: it is gathered */
    size_t room, held;
} writer;

static td_status add(writer *w, int step, td__shard_act act, int bucket)
{
    td__shard_script *s = w->s;
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        td__shard_op *more = td__realloc(s->ops, (size_t)room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for a script of %d lines", room);
        s->ops = more;
        s->room = room;
    }
    s->ops[s->n++] = (td__shard_op){step, act, bucket};
    return TD_OK;
}

static size_t size_of(const writer *w, int b)
{
    return w->m->begin[b + 1] - w->m->begin[b];
}

/* The bucket of a param's elements; -1: it has none, being row-sparse or a state. */
static int bucket_of(const writer *w, const td_params *ps, int param)
{
    td_param_info info = td_params_info(ps, param);
    int low = 0, high = w->m->params;
    if (info.is_state || info.sparse || !info.count)
        return -1;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        *(w->m->begin[mid] <= info.offset ? &low : &high) = mid;
    }
    return low;
}

/* The first step from `from` on that reads bucket b. */
static int next_use(const writer *w, const td_params *ps, int b, int from)
{
    for (int i = 0; i < w->n_uses; i++)
        if (w->uses[i].step >= from && !w->uses[i].grad && bucket_of(w, ps, w->uses[i].param) == b)
            return w->uses[i].step;
    return NEVER;
}

static td_status drop(writer *w, int step, int b)
{
    w->here[b] = false;
    w->held -= size_of(w, b);
    return add(w, step, TD__SHARD_DROP, b);
}

/* Drop what is not used from `step` on, and, for `more` elements, what is used last. */
static td_status make_room(writer *w, const td_params *ps, int step, size_t more)
{
    for (;;) {
        int farthest = -1, when = step;
        for (int b = 0; b < w->m->params; b++) {
            int next = w->here[b] ? next_use(w, ps, b, step) : 0;
            if (next > when) {
                farthest = b;
                when = next;
            }
        }
        if (farthest < 0 || (when != NEVER && w->held + more <= w->room))
            return TD_OK;
        TD_TRY(drop(w, step, farthest));
    }
}

static td_status gather(writer *w, const td_params *ps, int step)
{
    for (int i = 0; i < w->n_uses && w->uses[i].step <= step; i++) {
        if (w->uses[i].step < step || w->uses[i].grad)
            continue;
        int b = bucket_of(w, ps, w->uses[i].param);
        if (b < 0 || w->here[b])
            continue;
        TD_TRY(make_room(w, ps, step, size_of(w, b)));
        TD_TRY(add(w, step, TD__SHARD_GATHER, b));
        w->here[b] = true;
        w->held += size_of(w, b);
        w->s->most = w->held > w->s->most ? w->held : w->s->most;
    }
    return TD_OK;
}

static td_status reduce(writer *w, int step)
{
    for (int b = 0; b < w->m->n; b++)
        if (w->last[b] + 1 == step)
            TD_TRY(add(w, step, TD__SHARD_REDUCE, b));
    return TD_OK;
}

/* Room: for the largest bucket and one more like the usual. */
static size_t room_of(const td__ownership *m)
{
    size_t most = 0;
    for (int b = 0; b < m->params; b++) {
        size_t n = m->begin[b + 1] - m->begin[b];
        most = n > most ? n : most;
    }
    return BUCKETS_KEPT * most;
}

static td_status write_script(writer *w, const td_params *ps, bool params, bool evaluate)
{
    for (int b = 0; b < w->m->n; b++)
        w->last[b] = -1;
    for (int i = 0; i < w->n_uses; i++) {
        int b = w->uses[i].grad ? bucket_of(w, ps, w->uses[i].param) : -1;
        if (b >= 0 && w->uses[i].step > w->last[b])
            w->last[b] = w->uses[i].step;
    }
    for (int b = 0; b < w->m->n; b++)
        if (w->last[b] < 0)
            w->last[b] = w->steps - 1;
    for (int step = 0; step <= w->steps; step++) {
        if (!evaluate)
            TD_TRY(reduce(w, step));
        if (params)
            TD_TRY(make_room(w, ps, step, 0));
        if (params)
            TD_TRY(gather(w, ps, step));
    }
    return TD_OK;
}

static td_status write_plain(writer *w, bool params, bool evaluate)
{
    for (int b = 0; params && b < w->m->params; b++)
        TD_TRY(add(w, 0, TD__SHARD_GATHER, b));
    for (int b = 0; !evaluate && b < w->m->n; b++)
        TD_TRY(add(w, NEVER, TD__SHARD_REDUCE, b));
    for (int b = 0; params && b < w->m->params; b++)
        TD_TRY(add(w, NEVER, TD__SHARD_DROP, b));
    w->s->most = params && w->m->params ? w->m->begin[w->m->params] : 0;
    return TD_OK;
}

td_status td__shard_script_init(td__shard_script *s, const td__ownership *m, const td_program *p,
                                const td_params *ps, bool params, bool evaluate)
{
    td__param_use *uses = NULL;
    writer w = {.s = s, .m = m, .room = room_of(m)};
    td_status st = TD_OK;

    *s = (td__shard_script){.ops = NULL};
    if (!p)
        TD_TRY_OR(st, done, write_plain(&w, params, evaluate));
    if (p) {
        TD_TRY(td__program_uses(p, ps, &uses, &w.n_uses));
        w.uses = uses;
        w.steps = td__program_steps(p);
        w.last = td__calloc((size_t)m->n + 1, sizeof *w.last);
        w.here = td__calloc((size_t)m->n + 1, sizeof *w.here);
        st = w.last && w.here ? write_script(&w, ps, params, evaluate)
                              : TD_FAIL(TD_ENOMEM, "no memory for a script of %d buckets", m->n);
    }
done:
    td__free(uses);
    td__free(w.last);
    td__free(w.here);
    if (st)
        td__shard_script_fini(s);
    return st;
}

void td__shard_script_fini(td__shard_script *s)
{
    td__free(s->ops);
    *s = (td__shard_script){.ops = NULL};
}

bool td__shard_script_same(const td__shard_script *a, const td__shard_script *b)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->ops[i].act != b->ops[i].act || a->ops[i].bucket != b->ops[i].bucket)
            return false;
    return true;
}
