/* sync_async_admm.c -- asynchronous consensus ADMM (Zhang and Kwok, 2014): as admm, but the centre
 * z is moved when some ranks have arrived, not all. Rank 0 keeps w_i = x_i + u_i as it last came
 * from each rank:
 *
 *     rank i, every tau of its steps: sends w_i, waits for z, u_i <- u_i + x_i - z
 *     rank 0, when at least min_arrivals ranks have sent theirs since they got z, and no other is
 *     max_delay moves behind:   z <- (1/n) sum of w_i;   to those who have sent
 *
 * With min_arrivals of all ranks it is admm. Ranks at a meeting are not waited for. The age of z is
 * how many moves of it a rank has not seen. At a meeting ranks take z, and the duals are zero.
 *
 * The order that is recorded, on rank 0, has a group for each move: the ranks whose w_i are new in
 * it. In a replay the centre moves when these have sent theirs, and those of others wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/async.h"
#include "parallel/rules/sync_admm.h"

enum { ARRIVAL = TD__ASYNC_OWN, CENTRE };

typedef struct consensus {
    td__async base;
    float *u; /* (count) scaled duals */
    double primal, dual;
    /* With the post's lock. On rank 0, by rank: */
    float **w;
    bool *waiting;
    td__post_bytes **held; /* w that a replay does not have next; NULL: none */
    uint64_t *delay, moves;
    double *sums; /* (count) */
    /* This rank's: */
    float *z; /* (count) as it came */
    bool came;
    uint64_t seen, version;
} consensus;

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("8"), TD__ADMM_RHO,
    TD_KEY_ROW("min_arrivals", INT, "Ranks that the centre waits for before it moves.", .lo = 1,
               .hi = 1000000, .def = "2"),
    TD_KEY_ROW("max_delay", INT, "Moves of the centre that may leave a rank out, at most.", .lo = 1,
               .hi = 1000000, .def = "10"),
    TD_KEYS_END};

/* ---- The centre, on rank 0 ------------------------------------------------------------------- */

static bool is_due(const consensus *c)
{
    const td__sync *s = &c->base.base.base;
    int wanted = (int)td__sync_value(s, "min_arrivals"), here = 0, waiting = 0;
    uint64_t most = (uint64_t)td__sync_value(s, "max_delay");
    bool hurry = td__async_hurries(&c->base);
    for (int r = 0; r < c->base.base.ranks; r++) {
        bool away = td__async_away(&c->base, r);
        here += !away;
        waiting += c->waiting[r];
        if (!away && !c->waiting[r] && c->delay[r] >= most && !hurry)
            return false;
    }
    wanted = hurry ? 1 : wanted;
    return waiting && waiting >= (wanted < here ? wanted : here);
}

static void make_centre(consensus *c)
{
    td__sync_local *l = &c->base.base;
    memset(c->sums, 0, l->count * sizeof *c->sums);
    for (int r = 0; r < l->ranks; r++)
        for (size_t i = 0; i < l->count; i++)
            c->sums[i] += (double)c->w[r][i];
}

static td_status give(consensus *c, int rank, td__post_bytes *b)
{
    c->waiting[rank] = false;
    c->delay[rank] = 0;
    if (rank != c->base.rank)
        return td__post_send(c->base.post, rank,
                             &(td__post_head){.kind = CENTRE, .number = c->moves}, b);
    memcpy(c->z, td__post_bytes_data(b), c->base.base.count * sizeof *c->z);
    c->version = c->moves;
    c->came = true;
    return TD_OK;
}

static void take_held(consensus *c, int rank)
{
    if (!c->held[rank])
        return;
    memcpy(c->w[rank], td__post_bytes_data(c->held[rank]), c->base.base.count * sizeof **c->w);
    td__post_bytes_release(c->held[rank]);
    c->held[rank] = NULL;
    c->waiting[rank] = true;
}

/* Have all sent theirs that are in the next move of the replay? */
static bool has_group(const consensus *c)
{
    const td__async_order *o = &c->base.order;
    size_t i = o->at;
    while (i < o->given.n && o->given.at[i] >= 0 && c->held[o->given.at[i]])
        i++;
    return i > o->at && i < o->given.n && o->given.at[i] == TD__ORDER_END;
}

/* Those of the next move of the replay, or all that have come. Does the centre move? */
static bool takes_group(consensus *c)
{
    td__async_order *o = &c->base.order;
    if (!td__async_follows(&c->base)) {
        for (int r = 0; r < c->base.base.ranks; r++)
            take_held(c, r);
        return is_due(c);
    }
    if (!has_group(c))
        return false;
    for (int r; (r = td__async_order_next(o)) >= 0; td__async_order_took(o))
        take_held(c, r);
    td__async_order_took(o);
    return true;
}

static td_status note_group(consensus *c)
{
    for (int r = 0; r < c->base.base.ranks; r++)
        if (c->waiting[r])
            TD_TRY(td__async_note(&c->base, r));
    return td__async_order_end(&c->base.order);
}

static td_status move(consensus *c)
{
    td__sync_local *l = &c->base.base;
    td_status st = TD_OK;
    TD_TRY(note_group(c));
    td__post_bytes *b = td__post_bytes_create(l->count * sizeof(float));
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for the centre");
    float *z = td__post_bytes_data(b);
    make_centre(c);
    for (size_t i = 0; i < l->count; i++)
        z[i] = (float)(c->sums[i] / l->ranks);
    c->moves++;
    for (int r = 0; !st && r < l->ranks; r++) {
        if (c->waiting[r])
            st = give(c, r, b);
        else
            c->delay[r]++;
    }
    td__post_bytes_release(b);
    return st;
}

static td_status move_if_due(td__async *a)
{
    consensus *c = (consensus *)a;
    while (!a->rank && takes_group(c))
        TD_TRY(move(c));
    return TD_OK;
}

/* Rank 0 alone has moves: no rank twice in one, each once for each of its exchanges. */
static bool fits(const td__sync_config *c, const td__async_part *p)
{
    bool good = true;
    size_t group = 0; /* its first word */
    for (int r = 0; r < p->ranks; r++)
        good = good && p->counts[r] == (p->rank ? 0 : td__async_exchanges(c, p));
    for (size_t i = 0; i < p->n; i++) {
        for (size_t k = group; k < i; k++)
            good = good && p->words[k] != p->words[i];
        good = good && (p->words[i] >= 0 || i > group);
        group = p->words[i] < 0 ? i + 1 : group;
    }
    return good;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static td_status take(consensus *c, int from, td__post_bytes *w)
{
    if (c->held[from] || c->waiting[from])
        return TD_FAIL(TD_EPROTO, "rank %d sends its params before it has the centre", from);
    td__post_bytes_retain(w);
    c->held[from] = w;
    return move_if_due(&c->base);
}

static td_status told(td__async *a, int from, const td__post_head *h, td__post_bytes *b)
{
    consensus *c = (consensus *)a;
    size_t nbytes = a->base.count * sizeof(float);
    if ((b ? td__post_bytes_size(b) : 0) != nbytes || (h->kind == ARRIVAL) != (a->rank == 0))
        return TD_FAIL(TD_EPROTO, "message %u of %zu bytes from rank %d", h->kind,
                       b ? td__post_bytes_size(b) : 0, from);
    if (h->kind == ARRIVAL)
        return take(c, from, b);
    memcpy(c->z, td__post_bytes_data(b), nbytes);
    c->version = h->number;
    c->came = true;
    return TD_OK;
}

static bool has_come(void *user)
{
    return ((consensus *)user)->came;
}

/* w to the centre, z back. */
static td_status meet_centre(consensus *c, td__post_bytes *w)
{
    td__async *a = &c->base;
    td_status st = TD_OK;
    if (!a->post) {
        memcpy(c->z, td__post_bytes_data(w), td__post_bytes_size(w));
        return TD_OK;
    }
    td__post_lock(a->post);
    c->came = false;
    if (a->rank == 0)
        st = take(c, 0, w);
    else
        st = td__post_send(a->post, 0, &(td__post_head){.kind = ARRIVAL, .step = a->base.step}, w);
    if (!st)
        st = td__async_wait(a, has_come, c, "the centre of rank 0");
    if (!st) {
        td__async_age(a, (double)(c->version - c->seen - 1));
        c->seen = c->version;
    }
    td__post_unlock(a->post);
    return st;
}

/* ---- A rank ---------------------------------------------------------------------------------- */

/* Running averages have no duals. */
static void update_duals(consensus *c, float *x)
{
    td__sync_local *l = &c->base.base;
    const td_params *params = l->base.x.step.params;
    double primal = 0, dual = 0;
    for (int p = 0; p < td_params_count(params); p++) {
        td_param_info info = td_params_info(params, p);
        for (size_t i = info.offset; i < info.offset + info.count; i++) {
            float off = x[i] - c->z[i], moved = c->z[i] - l->centre[i];
            l->centre[i] = c->z[i];
            if (info.is_state) {
                x[i] = c->z[i];
                continue;
            }
            c->u[i] += off;
            primal += (double)off * (double)off;
            dual += (double)moved * (double)moved;
        }
    }
    c->primal = sqrt(primal);
    c->dual = td__sync_value(&l->base, "rho") * sqrt(dual);
}

static td_status exchange(td__async *a)
{
    consensus *c = (consensus *)a;
    td_params *params = a->base.base.x.step.params;
    td__step_times *times = td__step_times_of(a->base.base.engine);
    td__mapping map;
    td__post_bytes *w = td__post_bytes_create(a->base.count * sizeof(float));
    if (!w)
        return TD_FAIL(TD_ENOMEM, "no memory for the params of a rank");
    td_status st = td__params_map(params, 0, a->base.count, TD_MAP_BOTH, &map);
    if (st) {
        td__post_bytes_release(w);
        return st;
    }
    float *x = map.at, *to = td__post_bytes_data(w);
    for (size_t i = 0; i < a->base.count; i++)
        to[i] = x[i] + c->u[i];
    st = meet_centre(c, w);
    td__post_bytes_release(w);
    if (st) {
        td__mem_map_drop(&map);
        return st;
    }
    update_duals(c, x);
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(params);
    times->sent_nbytes = times->plain_nbytes = a->post ? a->base.count * sizeof(float) : 0;
    return TD_OK;
}

static td_status applied(td__async *a, double lr)
{
    consensus *c = (consensus *)a;
    return td__admm_pull(&a->base, c->u, lr);
}

/* The last z, which is that of rank 0: its w are of all ranks' last exchanges. */
static td_status come(td__async *a)
{
    consensus *c = (consensus *)a;
    td__sync_local *l = &a->base;
    if (a->post) {
        if (a->rank == 0) {
            td__post_lock(a->post);
            make_centre(c);
            for (size_t i = 0; i < l->count; i++)
                l->centre[i] = (float)(c->sums[i] / l->ranks);
            for (int r = 0; r < l->ranks; r++) {
                memcpy(c->w[r], l->centre, l->count * sizeof(float));
                c->delay[r] = 0;
            }
            td__post_unlock(a->post);
        }
        TD_TRY(td_broadcast(l->base.x.comm, l->centre, l->count, TD_F32, 0, NULL));
    }
    memset(c->u, 0, l->count * sizeof *c->u);
    return td__async_take_centre(a);
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    return td__async_check(c, j, w, fits);
}

static td_status create(td__sync *s)
{
    static const td__async_ops OPS = {.local = {.blocks = 1},
                                      .told = told,
                                      .changed = move_if_due,
                                      .exchange = exchange,
                                      .come = come,
                                      .applied = applied};
    consensus *c = (consensus *)s;
    TD_TRY(td__async_create(s, &OPS));
    size_t count = c->base.base.count, n = (size_t)c->base.base.ranks;
    c->primal = c->dual = (double)NAN;
    c->u = td__calloc(count + 1, sizeof *c->u);
    c->z = td__calloc(count + 1, sizeof *c->z);
    bool all = c->u && c->z;
    if (c->base.rank == 0) {
        c->sums = td__calloc(count + 1, sizeof *c->sums);
        c->w = td__calloc(n, sizeof *c->w);
        c->waiting = td__calloc(n, sizeof *c->waiting);
        c->held = td__calloc(n, sizeof *c->held);
        c->delay = td__calloc(n, sizeof *c->delay);
        all = all && c->sums && c->w && c->waiting && c->held && c->delay;
        for (size_t r = 0; all && r < n; r++)
            all = (c->w[r] = td__calloc(count + 1, sizeof **c->w)) != NULL;
    }
    return all ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the duals of a rank, and the centre");
}

static void destroy(td__sync *s)
{
    consensus *c = (consensus *)s;
    td__async_abandon(s, "the run was left");
    for (int r = 0; c->w && r < c->base.base.ranks; r++)
        td__free(c->w[r]);
    for (int r = 0; c->held && r < c->base.base.ranks; r++)
        td__post_bytes_release(c->held[r]);
    td__free(c->held);
    td__free(c->w);
    td__free(c->u);
    td__free(c->z);
    td__free(c->sums);
    td__free(c->waiting);
    td__free(c->delay);
    td__async_destroy(s);
}

/* Ranks that have not come yet count with the params that all begin with. */
static td_status meet(td__sync *s, td__sync_meet why)
{
    consensus *c = (consensus *)s;
    for (int r = 0; why == TD_MEET_BEGIN && c->w && r < c->base.base.ranks; r++)
        TD_TRY(td__mem_read(td__params_device(s->x.step.params), c->w[r],
                            td_params_block(s->x.step.params, NULL),
                            c->base.base.count * sizeof **c->w));
    return td__async_meet(s, why);
}

static int notes(td__sync *s, td__step_note *out)
{
    consensus *c = (consensus *)s;
    int n = td__async_notes(s, out);
    if (isnan(c->primal))
        return n;
    out[n] = (td__step_note){"primal", c->primal};
    out[n + 1] = (td__step_note){"dual", c->dual};
    return n + 2;
}

static size_t room(const td__sync_sizes *z)
{
    return td__sync_local_exchange(z) + ((size_t)z->world.ranks + 4) * z->params;
}

const td__sync_ops td__sync_async_admm = {
    .name = "async-admm",
    .help = "consensus ADMM whose centre moves when some of the ranks have arrived",
    .promise = "on several ranks a function of which of them are in each move of the centre, "
               "replayable",
    .unplanned = "its ranks exchange messages at any time",
    .options = OPTIONS,
    .size = sizeof(consensus),
    .check = check,
    .traits = td__async_traits,
    .exchange = room,
    .create = create,
    .destroy = destroy,
    .begin = td__async_begin,
    .step = td__async_step,
    .gather = td__async_gather,
    .meet = meet,
    .states = td__sync_local_states,
    .notes = notes,
    .order = td__async_told,
    .abandon = td__async_abandon,
};
