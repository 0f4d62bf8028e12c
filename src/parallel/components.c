/* components.c -- see components.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/components.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

/* The last update that touched a row, if `round` is that of now. */
typedef struct touch {
    uint32_t round;
    int32_t update;
} touch;

typedef struct group {
    int first, size; /* its first update, which names it; how many */
} group;

struct td__components {
    int most, threads, n;
    size_t rows;
    uint32_t round;
    touch *last;  /* (rows) */
    int *parent;  /* (most) of union-find: the root is the first update of its component */
    group *group; /* (most) sorted by size */
    int *of;      /* (most) the thread of an update */
    int *order;   /* (most) updates by thread */
    int *begin;   /* (threads + 1) in order */
    int *load;    /* (threads) updates */
};

td_status td__components_create(int most, size_t rows, int threads, td__components **out)
{
    *out = NULL;
    td__components *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory for components");
    size_t n = (size_t)most, t = (size_t)threads;
    *c = (td__components){.most = most, .threads = threads, .rows = rows};
    c->last = td__calloc(rows + 1, sizeof *c->last);
    c->parent = td__calloc(n + 1, sizeof *c->parent);
    c->group = td__calloc(n + 1, sizeof *c->group);
    c->of = td__calloc(n + 1, sizeof *c->of);
    c->order = td__calloc(n + 1, sizeof *c->order);
    c->begin = td__calloc(t + 1, sizeof *c->begin);
    c->load = td__calloc(t, sizeof *c->load);
    if (!c->last || !c->parent || !c->group || !c->of || !c->order || !c->begin || !c->load) {
        td__components_destroy(c);
        return TD_FAIL(TD_ENOMEM, "no memory for components of %d updates of %zu rows", most, rows);
    }
    *out = c;
    return TD_OK;
}

void td__components_destroy(td__components *c)
{
    if (!c)
        return;
    td__free(c->last);
    td__free(c->parent);
    td__free(c->group);
    td__free(c->of);
    td__free(c->order);
    td__free(c->begin);
    td__free(c->load);
    td__free(c);
}

void td__components_begin(td__components *c, int n)
{
    TD_ASSERT(n <= c->most, "%d updates, room for %d", n, c->most);
    if (++c->round == 0) { /* it has gone round: no row may seem touched */
        memset(c->last, 0, c->rows * sizeof *c->last);
        c->round = 1;
    }
    c->n = n;
    for (int u = 0; u < n; u++)
        c->parent[u] = u;
}

/* Halves the path on its way. */
static int find(td__components *c, int u)
{
    while (c->parent[u] != u)
        u = c->parent[u] = c->parent[c->parent[u]];
    return u;
}

void td__components_touch(td__components *c, int u, size_t r)
{
    touch *t = &c->last[r];
    if (t->round == c->round && t->update != u) {
        int a = find(c, t->update), b = find(c, u);
        if (a < b)
            c->parent[b] = a;
        else
            c->parent[a] = b;
    }
    *t = (touch){c->round, u};
}

static int larger_first(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->first < y->first ? -1 : 1;
}

/* Groups by their first update; returns how many there are. */
static int make_groups(td__components *c)
{
    int n = 0;
    for (int u = 0; u < c->n; u++) { /* a root comes before the others */
        int root = find(c, u);
        if (root == u) {
            c->of[u] = n;
            c->group[n++] = (group){.first = u};
        }
        c->group[c->of[root]].size++;
    }
    qsort(c->group, (size_t)n, sizeof *c->group, larger_first);
    return n;
}

int td__components_deal(td__components *c, int *largest)
{
    int n = make_groups(c);
    *largest = n ? c->group[0].size : 0;
    memset(c->load, 0, (size_t)c->threads * sizeof *c->load);
    for (int g = 0; g < n; g++) {
        int to = 0;
        for (int t = 1; t < c->threads; t++)
            to = c->load[t] < c->load[to] ? t : to;
        c->load[to] += c->group[g].size;
        c->of[c->group[g].first] = to;
    }
    for (int u = 0; u < c->n; u++)
        c->of[u] = c->of[find(c, u)];
    c->begin[0] = 0;
    for (int t = 0; t < c->threads; t++)
        c->begin[t + 1] = c->begin[t] + c->load[t];
    memset(c->load, 0, (size_t)c->threads * sizeof *c->load);
    for (int u = 0; u < c->n; u++)
        c->order[c->begin[c->of[u]] + c->load[c->of[u]]++] = u;
    return n;
}

const int *td__components_of(const td__components *c, int thread, int *n)
{
    *n = c->begin[thread + 1] - c->begin[thread];
    return c->order + c->begin[thread];
}
