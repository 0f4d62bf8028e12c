/* choose.c -- the table of algorithms and the choice of one.
 *
 * What a call asks for by name wins, then what the comm (its options, else TANDEM_ALGO) asks for
 * this collective, then the cheapest order-safe row. A name given for all collectives holds for
 * those that have such a row. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm_impl.h"

static const td__algo *const TABLE[] = {
#define TD_ALGO(collective, name) &td__algo_##collective##_##name,
#include "coll/algos.def"
#undef TD_ALGO
};

const char *td__coll_name(td__coll kind)
{
    static const char *const NAMES[TD_COLL_COUNT] = {
#define X(id, name) [TD_COLL_##id] = name,
        TD_COLL_MAP(X)
#undef X
    };
    return (unsigned)kind < TD_COLL_COUNT ? NAMES[kind] : "?";
}

const char *td_reduce_name(td_reduce_op op)
{
    static const char *const NAMES[TD_REDUCE_COUNT] = {
#define X(id, name) [TD_REDUCE_##id] = name,
        TD_REDUCE_MAP(X)
#undef X
    };
    return (unsigned)op < TD_REDUCE_COUNT ? NAMES[op] : "?";
}

const td__algo *td__algo_at(int i)
{
    return i >= 0 && i < TD_LEN(TABLE) ? TABLE[i] : NULL;
}

/* By name; kind TD_COLL_COUNT: of any collective. */
static const td__algo *find(td__coll kind, const char *name, size_t n)
{
    for (int i = 0; i < TD_LEN(TABLE); i++)
        if ((kind == TD_COLL_COUNT || TABLE[i]->kind == kind) && strlen(TABLE[i]->name) == n &&
            memcmp(TABLE[i]->name, name, n) == 0)
            return TABLE[i];
    return NULL;
}

static td__coll find_kind(const char *name, size_t n)
{
    for (int k = 0; k < TD_COLL_COUNT; k++)
        if (strlen(td__coll_name((td__coll)k)) == n &&
            memcmp(td__coll_name((td__coll)k), name, n) == 0)
            return (td__coll)k;
    return TD_COLL_COUNT;
}

static td_status unknown(td__coll kind, const char *name, size_t n)
{
    char list[300] = "";
    size_t used = 0;

    for (int i = 0; i < TD_LEN(TABLE) && used < sizeof list; i++) {
        bool seen = kind != TD_COLL_COUNT && TABLE[i]->kind != kind;
        for (int j = 0; j < i && !seen; j++)
            seen = strcmp(TABLE[j]->name, TABLE[i]->name) == 0 &&
                   (kind == TD_COLL_COUNT || TABLE[j]->kind == kind);
        if (!seen)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     TABLE[i]->name);
    }
    return TD_FAIL(TD_EINVAL, "%s: unknown algorithm \"%.*s\"; known: %s",
                   kind == TD_COLL_COUNT ? "algo" : td__coll_name(kind), (int)n, name, list);
}

/* The next "name" or "collective=name" of a list; false at its end. */
static bool next_entry(const char **text, const char **key, size_t *nkey, const char **name,
                       size_t *nname)
{
    const char *at = *text + strspn(*text, ", ");
    size_t n = strcspn(at, ", ");
    const char *equals = memchr(at, '=', n);

    if (n == 0)
        return false;
    *key = equals ? at : NULL;
    *nkey = equals ? (size_t)(equals - at) : 0;
    *name = equals ? equals + 1 : at;
    *nname = n - (size_t)(*name - at);
    *text = at + n;
    return true;
}

td_status td__algo_check(const char *text)
{
    const char *key, *name;
    size_t nkey, nname;

    while (next_entry(&text, &key, &nkey, &name, &nname)) {
        td__coll kind = key ? find_kind(key, nkey) : TD_COLL_COUNT;
        if (key && kind == TD_COLL_COUNT)
            return TD_FAIL(TD_EINVAL, "algo: unknown collective \"%.*s\" in \"%s\"", (int)nkey, key,
                           key);
        if (!find(kind, name, nname))
            return unknown(kind, name, nname);
    }
    return TD_OK;
}

/* What the comm's list says about this collective; NULL: nothing. */
static const td__algo *preferred(const td_comm *c, td__coll kind)
{
    const char *text = c->algo, *key, *name;
    const td__algo *general = NULL;
    size_t nkey, nname;

    while (next_entry(&text, &key, &nkey, &name, &nname)) {
        if (!key)
            general = find(kind, name, nname);
        else if (find_kind(key, nkey) == kind)
            return find(kind, name, nname);
    }
    return general;
}

/* What the comm asks for, else the cheapest. */
static td_status choose(const td__coll_ctx *x, const td__coll_call *call, const td__algo **out)
{
    const td__algo *best = NULL;
    double least = 0;

    const td__algo *wish = x->comm->algo[0] ? preferred(x->comm, call->kind) : NULL;
    if (wish && wish->can(x, call)) {
        *out = wish;
        return TD_OK;
    }
    for (int i = 0; i < TD_LEN(TABLE); i++) {
        const td__algo *a = TABLE[i];
        if (a->kind != call->kind || !a->order_safe || !a->can(x, call))
            continue;
        double cost = a->cost(x, call);
        if (!best || cost < least) {
            best = a;
            least = cost;
        }
    }
    if (!best)
        return TD_FAIL(TD_ENOTSUP, "%s: no algorithm supports this call on %d ranks",
                       td__coll_name(call->kind), x->comm->size);
    TD_LOG(DEBUG, COLL, "%s of %zu %s on %d ranks: %s, %.3g us", td__coll_name(call->kind),
           call->count, td_dtype_name(call->dtype), x->comm->size, best->name, 1e6 * least);
    *out = best;
    return TD_OK;
}

td_status td__algo_choose(const td__coll_ctx *x, const td__coll_call *call, const td__algo **out)
{
    if (call->algo) {
        *out = find(call->kind, call->algo, strlen(call->algo));
        if (!*out)
            return unknown(call->kind, call->algo, strlen(call->algo));
        if (!(*out)->can(x, call))
            return TD_FAIL(TD_ENOTSUP,
                           "%s: algorithm \"%s\" does not support this call on %d ranks",
                           td__coll_name(call->kind), call->algo, x->comm->size);
        return TD_OK;
    }
    td__choice *last = &x->comm->choices[call->kind];
    if (last->algo && last->count == call->count && last->dtype == call->dtype &&
        last->op == call->op && last->root == call->root && last->segment == call->segment) {
        *out = last->algo;
        return TD_OK;
    }
    TD_TRY(choose(x, call, out));
    *last = (td__choice){.algo = *out,
                         .count = call->count,
                         .segment = call->segment,
                         .dtype = call->dtype,
                         .op = call->op,
                         .root = call->root};
    return TD_OK;
}
