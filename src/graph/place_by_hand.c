/* place_by_hand.c -- see place_by_hand.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/place_by_hand.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "graph/cost.h"
#include "graph/graph_impl.h"
#include "graph/origin.h"
#include "tandem/place.h"

/* Until a model is placed, node->place is the wish plus 1; 0: none. */
int td__graph_wish(td_graph *g, int place)
{
    return td__graph_set_place(g, place + 1) - 1;
}

td_node *td_node_place(td_graph *g, td_node *n, int place)
{
    if (!n || g->status)
        return NULL;
    if (place < 0 || place >= TD_PLACE_MOST)
        return td__graph_fail(g, TD_EINVAL, "td_node_place", "place %d; 0 to %d are possible",
                              place, TD_PLACE_MOST - 1);
    n->place = place + 1;
    return n;
}

int td__graph_last_wish(const td_graph *g)
{
    int last = 0;
    for (int i = 0; i < g->n_nodes; i++)
        last = g->nodes[i]->place > last ? g->nodes[i]->place : last;
    return last - 1;
}

/* What people know a node by: the param that it reads, else its own name. */
static const char *known_as(const td_node *x)
{
    for (int k = 0; k < x->n_in; k++)
        if (x->in[k]->op == TD_OP_PARAM)
            return x->in[k]->name;
    return x->name;
}

/* "job.yaml:9: " of what it is known by; nothing if that is not known. */
static char *where(const td_node *x, char buf[TD__ORIGIN])
{
    buf[0] = 0;
    for (int k = 0; k < x->n_in && !buf[0]; k++)
        if (x->in[k]->op == TD_OP_PARAM && x->in[k]->origin)
            snprintf(buf, TD__ORIGIN, "%s: ", x->in[k]->origin);
    return buf;
}

/* The input that is at the highest place. */
static const td_node *last_input(const td_node *x)
{
    const td_node *last = NULL;
    for (int k = 0; k < x->n_in; k++)
        if (!td__is_leaf(x->in[k]) && (!last || x->in[k]->place > last->place))
            last = x->in[k];
    return last;
}

static void place_leaves(td_graph *g)
{
    for (int i = g->n_nodes; i-- > 0;)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (td__is_leaf(g->nodes[i]->in[k]))
                g->nodes[i]->in[k]->place = g->nodes[i]->place;
}

/* Has any chunk this place, and which is the last that one has? */
static bool has_place(const td__wishes *w, int wish, int *last)
{
    bool found = false;
    *last = 0;
    for (int at = 0; at < w->places; at++) {
        int place = w->wish_of(w->user, at);
        found = found || place == wish;
        *last = place > *last ? place : *last;
    }
    return found;
}

static bool reads_params(const td_node *x)
{
    for (int k = 0; k < x->n_in; k++)
        if (x->in[k]->op == TD_OP_PARAM)
            return true;
    return false;
}

/* What is at the place before this one, from the layer on that has half of the work before it, goes
 * to this one. Nodes are in the order in which they read each other. */
static void share_with(td_graph *g, int place)
{
    double all = 0, before = 0, nearest = 0;
    int from = -1, layers = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->place == place - 1 && !td__is_leaf(g->nodes[i]))
            all += td__node_work(g, i);
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *x = g->nodes[i];
        if (x->place != place - 1 || td__is_leaf(x))
            continue;
        double off = before < all / 2 ? all / 2 - before : before - all / 2;
        if (reads_params(x) && layers++ && (from < 0 || off < nearest)) {
            from = i;
            nearest = off;
        }
        before += td__node_work(g, i);
    }
    for (int i = from; i >= 0 && i < g->n_nodes; i++)
        if (g->nodes[i]->place == place - 1 && !td__is_leaf(g->nodes[i]))
            g->nodes[i]->place = place;
}

static bool any_at(const td_graph *g, int place)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->place == place && !td__is_leaf(g->nodes[i]))
            return true;
    return false;
}

/* A wish has several places in a row: those behind the first take a share of what wants it. */
static void share_places(td_graph *g, const td__wishes *w)
{
    for (int at = 1; at < w->places; at++)
        if (!any_at(g, at) && w->wish_of(w->user, at) == w->wish_of(w->user, at - 1))
            share_with(g, at);
}

td_status td__graph_check_places(const td_graph *g, const td__wishes *w)
{
    int last, at = 0;
    char order[128] = "";
    while (at < w->places && any_at(g, at))
        at++;
    if (at == w->places)
        return TD_OK;
    (void)has_place(w, 0, &last);
    if (w->places == last + 1)
        return TD_FAIL(TD_EINVAL,
                       "place: nothing is on stage %d: let a layer have place: %d, or use fewer "
                       "stages",
                       at, at);
    for (int k = 0, n = 0; k < w->places && n < (int)sizeof order; k++)
        n += snprintf(order + n, sizeof order - (size_t)n, " %d", w->wish_of(w->user, k));
    return TD_FAIL(TD_EINVAL,
                   "place: nothing is on chunk %d (stage %d): the schedule's chunks are on the "
                   "stages%s, in this order; let places follow it, or use the schedule 1f1b, or "
                   "leave place out",
                   at, w->wish_of(w->user, at), order);
}

td_status td__graph_place_by_wish(td_graph *g, const td__wishes *w)
{
    for (int i = 0; i < g->n_nodes; i++) {
        td_node *x = g->nodes[i];
        const td_node *last = last_input(x);
        int at = last ? last->place : 0, wish = x->place - 1, most;
        char at_line[TD__ORIGIN];
        if (td__is_leaf(x))
            continue;
        if (wish >= 0 && !has_place(w, wish, &most))
            return TD_FAIL(
                TD_EINVAL,
                "%s'%s' wants place %d, and stages are 0 to %d: use one of them, or more "
                "stages (parallel.pipeline)",
                where(x, at_line), known_as(x), wish, most);
        while (wish >= 0 && at < w->places && w->wish_of(w->user, at) != wish)
            at++;
        if (at == w->places)
            return TD_FAIL(TD_EINVAL,
                           "%s'%s' wants place %d and needs '%s' of place %d: values would go in a "
                           "circle; let places rise from layer to layer, or use a schedule "
                           "whose stages have several chunks (zb-v: places 0 1 0, interleaved: "
                           "0 1 0 1)",
                           where(x, at_line), known_as(x), wish, known_as(last),
                           w->wish_of(w->user, last->place));
        x->place = at;
    }
    share_places(g, w);
    place_leaves(g);
    return TD_OK;
}

/* ---- By layers ------------------------------------------------------------------------------- */

/* Is `layer` (n characters) a part of the name between dots or slashes? */
static bool is_part(const char *name, const char *layer, size_t n)
{
    for (const char *at = name; (at = strstr(at, layer)) != NULL; at++) {
        bool begins = at == name || at[-1] == '.' || at[-1] == '/';
        if (begins && (at[n] == 0 || at[n] == '.' || at[n] == '/'))
            return true;
    }
    return false;
}

/* The first node that reads a param of the layer; -1: none does. */
static int first_of(const td_graph *g, const char *layer)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k]->op == TD_OP_PARAM &&
                is_part(g->nodes[i]->in[k]->name, layer, strlen(layer)))
                return i;
    return -1;
}

static td_status next_layer(const char **at, char *to, size_t room, const char *key)
{
    *at += strspn(*at, ", ");
    size_t n = strcspn(*at, ", ");
    if (n >= room)
        return TD_FAIL(TD_EINVAL, "%s: a name of %zu characters is too long", key, n);
    memcpy(to, *at, n);
    to[n] = 0;
    *at += n;
    return TD_OK;
}

td_status td__graph_place_by_layers(td_graph *g, const char *layers, int places, const char *key)
{
    char name[200], before[200] = "";
    int from = 0, place = 0;
    for (const char *at = layers;; place++) {
        TD_TRY(next_layer(&at, name, sizeof name, key));
        int to = *name ? first_of(g, name) : g->n_nodes;
        if (to < 0)
            return TD_FAIL(TD_EINVAL,
                           "%s: no layer with params is called '%s'; `tandem check` prints them",
                           key, name);
        if (to <= from && *name && place)
            return TD_FAIL(TD_EINVAL, "%s: '%s' comes before '%s' in the model", key, name, before);
        for (int i = from; i < to; i++)
            g->nodes[i]->place = place;
        from = to;
        memcpy(before, name, sizeof before);
        if (!*name)
            break;
    }
    if (place + 1 != places)
        return TD_FAIL(TD_EINVAL,
                       "%s: names the first layers of %d chunks, and there are %d: name %d, all "
                       "but the first",
                       key, place + 1, places, places - 1);
    place_leaves(g);
    return TD_OK;
}
