/* skyline.c -- two segment trees in one, over steps: each node has the lowest and the highest
 * `full` of its steps and the highest `top`. Adding a buffer and asking take the logarithm of the
 * number of steps, mostly. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/skyline.h"

#include "base/alloc.h"

typedef struct span {
    size_t low, high;  /* of `full` */
    bool set;          /* to low, in all steps below, which have not been told */
    size_t top, floor; /* floor: no step below has a lower top, whatever they say */
} span;

struct td__skyline {
    int n; /* steps, a power of two */
    span *at;
};

typedef struct range {
    int node, from, to; /* steps [from, to) */
} range;

static range left(range r)
{
    return (range){2 * r.node, r.from, r.from + (r.to - r.from) / 2};
}

static range right(range r)
{
    return (range){2 * r.node + 1, r.from + (r.to - r.from) / 2, r.to};
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

td__skyline *td__skyline_create(int n_steps)
{
    td__skyline *s = td__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    for (s->n = 1; s->n < n_steps; s->n *= 2)
        ;
    s->at = td__calloc(2 * (size_t)s->n, sizeof *s->at);
    if (s->at)
        return s;
    td__free(s);
    return NULL;
}

void td__skyline_destroy(td__skyline *s)
{
    if (s)
        td__free(s->at);
    td__free(s);
}

static void set_full(span *at, size_t full)
{
    at->low = at->high = full;
    at->set = true;
}

static void tell_below(td__skyline *s, range r)
{
    span *at = &s->at[r.node];
    if (!at->set)
        return;
    set_full(at + r.node, at->low);
    set_full(at + r.node + 1, at->low);
    at->set = false;
}

static size_t full(td__skyline *s, range r, int first, int last)
{
    const span *at = &s->at[r.node];
    if (r.to <= first || r.from > last)
        return 0;
    if ((first <= r.from && r.to <= last + 1) || at->set)
        return at->high;
    return larger(full(s, left(r), first, last), full(s, right(r), first, last));
}

static size_t top(const td__skyline *s, range r, int first, int last)
{
    const span *at = &s->at[r.node];
    if (r.to <= first || r.from > last)
        return 0;
    if (first <= r.from && r.to <= last + 1)
        return at->top;
    return larger(at->floor, larger(top(s, left(r), first, last), top(s, right(r), first, last)));
}

/* Steps that are full up to begin are so up to end. */
static void fill(td__skyline *s, range r, int first, int last, size_t begin, size_t end)
{
    span *at = &s->at[r.node];
    bool inside = first <= r.from && r.to <= last + 1;
    if (r.to <= first || r.from > last || (inside && at->high < begin))
        return;
    if (inside && at->low == begin && at->high == begin) {
        set_full(at, end);
        return;
    }
    tell_below(s, r);
    fill(s, left(r), first, last, begin, end);
    fill(s, right(r), first, last, begin, end);
    const span *a = at + r.node, *b = a + 1;
    at->low = a->low < b->low ? a->low : b->low;
    at->high = larger(a->high, b->high);
}

static void raise_top(td__skyline *s, range r, int first, int last, size_t end)
{
    span *at = &s->at[r.node];
    if (r.to <= first || r.from > last)
        return;
    at->top = larger(at->top, end);
    if (first <= r.from && r.to <= last + 1) {
        at->floor = larger(at->floor, end);
        return;
    }
    raise_top(s, left(r), first, last, end);
    raise_top(s, right(r), first, last, end);
}

size_t td__skyline_full(td__skyline *s, int first, int last)
{
    return full(s, (range){1, 0, s->n}, first, last);
}

size_t td__skyline_top(const td__skyline *s, int first, int last)
{
    return top(s, (range){1, 0, s->n}, first, last);
}

void td__skyline_add(td__skyline *s, int first, int last, size_t begin, size_t end)
{
    fill(s, (range){1, 0, s->n}, first, last, begin, end);
    raise_top(s, (range){1, 0, s->n}, first, last, end);
}
