/* cut.c -- which pieces a program falls into, and which values cross between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/cut_impl.h"
#include "graph/origin.h"
#include "graph/phases.h"

static int by_place(const void *a, const void *b)
{
    return ((const td__piece *)a)->place - ((const td__piece *)b)->place;
}

static int find_piece(const td__cut *cut, int place)
{
    const td__piece key = {.place = place};
    const td__piece *at = bsearch(&key, cut->pieces, (size_t)cut->n_pieces, sizeof key, by_place);
    return at ? (int)(at - cut->pieces) : 0;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static td_status find_pieces(td__cutter *c)
{
    const td_program *p = c->p;
    td__cut *cut = c->cut;
    int n = 0;
    cut->pieces = td__calloc((size_t)p->n_steps + 1, sizeof *cut->pieces);
    c->piece_of = td__calloc((size_t)p->g->n_nodes + 1, sizeof *c->piece_of);
    if (!cut->pieces || !c->piece_of)
        return TD_FAIL(TD_ENOMEM, "no memory to cut a program of %d steps", p->n_steps);
    for (int i = 0; i < p->n_steps; i++)
        cut->pieces[i].place = p->steps[i].node->place;
    qsort(cut->pieces, (size_t)p->n_steps, sizeof *cut->pieces, by_place);
    for (int i = 0; i < p->n_steps; i++)
        if (!n || cut->pieces[i].place != cut->pieces[n - 1].place)
            cut->pieces[n++].place = cut->pieces[i].place;
    cut->n_pieces = n;
    for (int i = 0; i < p->g->n_nodes; i++)
        c->piece_of[i] = find_piece(cut, p->g->nodes[i]->place);
    return TD_OK;
}

/* The piece that updates a param is the one that makes its gradient. */
static td_status find_owners(td__cutter *c)
{
    const td_program *p = c->p;
    c->owner = td__calloc((size_t)p->n_slots + 1, sizeof *c->owner);
    if (!c->owner)
        return TD_FAIL(TD_ENOMEM, "no memory to cut a program of %d params", p->n_slots);
    for (int i = 0; i < p->n_slots; i++)
        c->owner[i] = c->piece_of[p->slots[i].leaf->id];
    for (int i = 0; i < p->g->n_roots; i++) {
        const td__root *r = &p->g->roots[i];
        int k;
        if (r->leaf)
            c->owner[td__location_of(p, r->leaf, 0)->slot] =
                c->piece_of[td__view_base(r->node, &k)->id];
    }
    return TD_OK;
}

/* ---- Edges ----------------------------------------------------------------------------------- */

/* Is a value made there in that phase ready when `to` reads it? */
static bool in_order(td_run_phase made, int from, td_run_phase needed, int to)
{
    if (made == TD_RUN_FORWARD)
        return needed != TD_RUN_FORWARD || from < to;
    return from > to;
}

static td_status add_edge(td__cutter *c, const td_node *made_by, int k, const td_node *reader)
{
    td__cut *cut = c->cut;
    int from = c->piece_of[made_by->id], to = c->piece_of[reader->id];
    if (!in_order(made_by->phase, from, reader->phase, to))
        return TD_FAIL(TD_EINVAL,
                       "td__program_cut: '%s' (%s, place %d) needs '%s' (%s, place %d): values "
                       "flow to higher places in forward and to lower ones in backward",
                       reader->name, td__run_phase_name(reader->phase), reader->place,
                       made_by->name, td__run_phase_name(made_by->phase), made_by->place);
    int i = td__cut_edge(c, made_by, k, to);
    if (i < 0) {
        char name[300];
        i = cut->n_edges;
        snprintf(name, sizeof name, "%.256s:%d#%d", made_by->name, k, i);
        char *copy = td__strdup(name);
        if (!copy)
            return TD_FAIL(TD_ENOMEM, "no memory for the name of an edge");
        size_t value = (size_t)made_by->id * TD_MAX_OUT + (size_t)k;
        c->edge_of[value * (size_t)cut->n_pieces + (size_t)to] = i;
        c->made_by[i] = made_by;
        c->output[i] = k;
        cut->edges[i] = (td__edge){.name = copy,
                                   .from = from,
                                   .to = to,
                                   .made = made_by->phase,
                                   .needed = reader->phase,
                                   .nbytes = td__desc_bytes(&made_by->out[k])};
        cut->n_edges++;
    }
    if (cut->edges[i].needed > reader->phase)
        cut->edges[i].needed = reader->phase;
    return TD_OK;
}

static td_status find_edges(td__cutter *c)
{
    const td_program *p = c->p;
    size_t n_values = (size_t)p->g->n_nodes * TD_MAX_OUT * (size_t)c->cut->n_pieces, n_reads = 1;
    for (int i = 0; i < p->n_steps; i++)
        n_reads += (size_t)p->steps[i].node->n_in;
    c->edge_of = td__calloc(n_values + 1, sizeof *c->edge_of);
    c->made_by = td__calloc(n_reads, sizeof *c->made_by);
    c->output = td__calloc(n_reads, sizeof *c->output);
    c->cut->edges = td__calloc(n_reads, sizeof *c->cut->edges);
    if (!c->edge_of || !c->made_by || !c->output || !c->cut->edges)
        return TD_FAIL(TD_ENOMEM, "no memory to cut a program of %d steps", p->n_steps);
    for (size_t v = 0; v < n_values; v++)
        c->edge_of[v] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const td_node *reader = p->steps[i].node;
        for (int j = 0; j < reader->n_in; j++) {
            int k;
            const td_node *base = td__view_base(reader->in[j], &k);
            if (!td__is_leaf(base) && !td__cut_anew(base) &&
                c->piece_of[base->id] != c->piece_of[reader->id])
                TD_TRY(add_edge(c, base, k, reader));
        }
    }
    return TD_OK;
}

static td_status list_edges(td__cutter *c, int i)
{
    td__piece *piece = &c->cut->pieces[i];
    size_t n = (size_t)c->cut->n_edges + 1;
    piece->in = td__calloc(n, sizeof *piece->in);
    piece->out = td__calloc(n, sizeof *piece->out);
    if (!piece->in || !piece->out)
        return TD_FAIL(TD_ENOMEM, "no memory to cut a program");
    for (int e = 0; e < c->cut->n_edges; e++) {
        if (c->cut->edges[e].to == i)
            piece->in[piece->n_in++] = e;
        if (c->cut->edges[e].from == i)
            piece->out[piece->n_out++] = e;
    }
    return TD_OK;
}

/* ---- Params ---------------------------------------------------------------------------------- */

static void add_range(td__param_range *list, int *n, const td__slot *slot)
{
    size_t count = td__align_up((size_t)td__desc_count(&slot->leaf->out[0]), TD_ALIGN_FLOATS);
    if (*n && list[*n - 1].end == slot->offset)
        list[*n - 1].end += count;
    else
        list[(*n)++] = (td__param_range){slot->offset, slot->offset + count};
}

/* Those that the piece's program has, by who updates them. */
static td_status list_params(td__cutter *c, int i)
{
    td__piece *piece = &c->cut->pieces[i];
    const td_program *own = piece->program;
    piece->params = td__calloc((size_t)own->n_slots + 1, sizeof *piece->params);
    piece->shared = td__calloc((size_t)own->n_slots + 1, sizeof *piece->shared);
    if (!piece->params || !piece->shared)
        return TD_FAIL(TD_ENOMEM, "no memory to cut a program");
    for (int s = 0, mine = 0; s < c->p->n_slots && mine < own->n_slots; s++) {
        if (strcmp(own->slots[mine].leaf->name, c->p->slots[s].leaf->name) != 0)
            continue;
        mine++;
        if (c->owner[s] == i)
            add_range(piece->params, &piece->n_params, &c->p->slots[s]);
        else
            add_range(piece->shared, &piece->n_shared, &c->p->slots[s]);
    }
    return TD_OK;
}

/* ---- The public functions -------------------------------------------------------------------- */

static td_status cut_all(td__cutter *c)
{
    TD_TRY(find_pieces(c));
    TD_TRY(find_owners(c));
    TD_TRY(find_edges(c));
    for (int i = 0; i < c->cut->n_pieces; i++) {
        TD_TRY(list_edges(c, i));
        TD_TRY(td__cut_piece(c, i));
        TD_TRY(list_params(c, i));
    }
    return TD_OK;
}

td_status td__program_cut(const td_program *p, td__cut **out)
{
    *out = NULL;
    if (!p->phased)
        return TD_FAIL(TD_EINVAL, "td__program_cut: the program is not ordered by phase");
    td__cutter c = {.p = p, .cut = td__calloc(1, sizeof *c.cut)};
    td_status st = c.cut ? cut_all(&c) : TD_FAIL(TD_ENOMEM, "td__program_cut: no memory for a cut");
    td__free(c.piece_of);
    td__free(c.owner);
    td__free(c.edge_of);
    td__free(c.made_by);
    td__free(c.output);
    if (st) {
        td__cut_destroy(c.cut);
        return st;
    }
    *out = c.cut;
    return TD_OK;
}

void td__cut_destroy(td__cut *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_pieces; i++) {
        td_program_destroy(c->pieces[i].program);
        td__free(c->pieces[i].in);
        td__free(c->pieces[i].out);
        td__free(c->pieces[i].params);
        td__free(c->pieces[i].shared);
    }
    for (int i = 0; i < c->n_edges; i++)
        td__free((void *)(uintptr_t)c->edges[i].name);
    td__free(c->pieces);
    td__free(c->edges);
    td__free(c);
}

/* The layer's part of a param's name. */
static int layer_of(const char *param)
{
    const char *dot = strrchr(param, '.');
    return dot ? (int)(dot - param) : (int)strlen(param);
}

/* The param that an input is, or is pieces of; NULL: it is something else. */
static const td_node *param_of(const td_node *in)
{
    int k;
    const td_node *base = in->op == TD_OP_PARAM ? in : td__view_base(in, &k);
    if (td__cut_anew(base))
        base = base->in[0];
    return base->op == TD_OP_PARAM ? base : NULL;
}

/* The first and the last param that a piece's forward reads; NULL: none. */
static void find_ends(const td__cut *c, int piece, const td_node **first, const td_node **last)
{
    const td_graph *g = c->pieces[piece].program->g;
    *first = *last = NULL;
    for (int i = 0; i < g->n_nodes; i++)
        if (!td__is_leaf(g->nodes[i]) && !td__cut_anew(g->nodes[i]) &&
            g->nodes[i]->phase == TD_RUN_FORWARD && g->nodes[i]->op != TD_OP_PART)
            for (int k = 0; k < g->nodes[i]->n_in; k++) {
                const td_node *param = param_of(g->nodes[i]->in[k]);
                *last = param ? param : *last;
                *first = *first ? *first : *last;
            }
}

char *td__cut_name(const td__cut *c, int piece, char buf[TD__PIECE_NAME])
{
    const td_node *a, *b;
    find_ends(c, piece, &a, &b);
    const char *first = a ? a->name : NULL, *last = b ? b->name : NULL;
    if (!first)
        snprintf(buf, TD__PIECE_NAME, "chunk %d", piece);
    else if (layer_of(first) == layer_of(last) && !strncmp(first, last, (size_t)layer_of(first)))
        snprintf(buf, TD__PIECE_NAME, "%.*s", layer_of(first), first);
    else
        snprintf(buf, TD__PIECE_NAME, "%.*s to %.*s", layer_of(first), first, layer_of(last), last);
    return buf;
}

char *td__cut_place(const td__cut *c, int piece, char buf[TD__PIECE_PLACE])
{
    const td_node *first, *last;
    char name[TD__PIECE_NAME], origin[TD__ORIGIN] = "";
    find_ends(c, piece, &first, &last);
    if (first)
        td__origin_text(first->origin, last->origin, origin);
    snprintf(buf, TD__PIECE_PLACE, "%s%s%s", td__cut_name(c, piece, name), *origin ? ", " : "",
             origin);
    return buf;
}
