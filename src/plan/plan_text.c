/* plan_text.c -- plans for people: names of operations, lists, a timeline. See plan.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/human.h"
#include "ops/phase.h"
#include "plan/plan.h"

static const char *const PHASES[TD_RUN_PHASE_COUNT] = {"forward", "backward", "weight gradients"};
static const char *const COLLS[TD_PLAN_COLLS] = {"allreduce", "reduce-scatter", "all-gather",
                                                 "broadcast", "all-to-all",     "barrier"};
static const char *const LANES[TD_LANES] = {
    "compute",     "send forward", "receive forward", "send backward", "receive backward",
    "collectives", "copies",       "send ahead",      "receive ahead", "numbers"};

/* Where ranks have whole models, messages go in no direction. */
static const char *lane_name(const td__plan *p, int lane)
{
    bool message = lane == TD_LANE_SEND_UP || lane == TD_LANE_RECV_UP;
    return p->axis == TD_AXIS_PIPELINE || !message ? LANES[lane]
           : lane == TD_LANE_SEND_UP               ? "send"
                                                   : "receive";
}

/* What a role is called: a rank of the world, where it is one. */
static const char *role_word(const td__plan *p)
{
    bool alone = td__rank_mesh_ranks(&p->mesh) == td__plan_roles(p);
    return alone ? "rank" : p->axis == TD_AXIS_PIPELINE ? "stage" : "replica";
}

char *td__plan_role_text(const td__plan *p, int role, char buf[TD__PLAN_ROLE])
{
    int all = td__rank_mesh_ranks(&p->mesh), first = -1, last = -1;
    int n = snprintf(buf, TD__PLAN_ROLE, "%s %d", role_word(p), role);
    for (int r = 0; r < all; r++)
        if (td__rank_mesh_coordinate(&p->mesh, r, p->axis) == role) {
            first = first < 0 ? r : first;
            last = r;
        }
    if (all == td__plan_roles(p))
        return buf;
    if (last - first + 1 == all / td__plan_roles(p)) /* neighbours */
        snprintf(buf + n, TD__PLAN_ROLE - (size_t)n, " (ranks %d to %d)", first, last);
    else
        snprintf(buf + n, TD__PLAN_ROLE - (size_t)n, " (ranks %d, ..., %d)", first, last);
    return buf;
}

/* " (conv1 to fc2)", or nothing for a chunk without a name. */
static const char *named(const td__plan *p, int chunk, char *buf, size_t nbytes)
{
    const char *name = chunk < p->n_chunks ? p->chunks[chunk] : NULL;
    snprintf(buf, nbytes, name ? " (%s)" : "%s", name ? name : "");
    return buf;
}

/* What a message carries that is no value of a micro-batch: "8.0 KB of params"; NULL: such a value.
 */
static const char *content(const td__plan_op *o, char *buf, size_t nbytes)
{
    char size[TD__HUMAN];
    if (o->phase == TD__PLAN_TURN)
        return "the turn to update";
    if (o->phase != TD__PLAN_PARAMS && o->phase != TD__PLAN_SUMS)
        return NULL;
    snprintf(buf, nbytes, "%s of %s", td__human_bytes((double)o->nbytes, size),
             o->phase == TD__PLAN_PARAMS ? "params" : "sums of gradients");
    return buf;
}

/* Texts of operations begin with their role: "rank 1: ", "stage 1 (ranks 2 to 3): ". */
static void message_text(const td__plan *p, const td__plan_op *o, int role, const char *name,
                         char *buf)
{
    char what[64], who[TD__PLAN_ROLE];
    const char *verb = o->kind == TD_PLAN_SEND ? "send" : "receive";
    const char *with = o->kind == TD_PLAN_SEND ? "to" : "from", *other, *word = role_word(p);
    td__plan_role_text(p, role, who);
    other = content(o, what, sizeof what);
    if (other)
        snprintf(buf, TD__PLAN_TEXT, "%s: %s %s %s %s %d", who, verb, other, with, word,
                 role + o->peer);
    else
        snprintf(buf, TD__PLAN_TEXT, "%s: %s %s values of micro-batch %u %s %s %d, chunk %d%s", who,
                 verb, PHASES[o->phase], o->micro_batch, with, word, role + o->peer, o->chunk,
                 name);
}

static void run_text(const td__plan_op *o, const char *who, const char *name, char *buf)
{
    char size[TD__HUMAN];
    int n = snprintf(buf, TD__PLAN_TEXT, "%s: %s of micro-batch %u through chunk %d%s", who,
                     PHASES[o->phase], o->micro_batch, o->chunk, name);
    if (o->nbytes && n < TD__PLAN_TEXT)
        snprintf(buf + n, TD__PLAN_TEXT - (size_t)n, ", with %s along tensor",
                 td__human_bytes((double)o->nbytes, size));
}

static void coll_text(const td__plan *p, const td__plan_op *o, int role, const char *name,
                      char *buf)
{
    char size[TD__HUMAN], who[TD__PLAN_ROLE];
    const char *of = o->nbytes == TD__PLAN_ANY ? " of rows" : " of ";
    const char *what = o->phase == TD__PLAN_NUMBERS ? " of losses and requests" : "";
    bool sized = o->nbytes != TD__PLAN_ANY && o->coll != TD_PLAN_BARRIER;
    int n = snprintf(buf, TD__PLAN_TEXT, "%s: %s%s%s%s along %s", td__plan_role_text(p, role, who),
                     COLLS[o->coll], o->coll == TD_PLAN_BARRIER ? "" : of,
                     sized ? td__human_bytes((double)o->nbytes, size) : "", what,
                     td__axis_name((td__axis)o->axis));
    if (!*what && o->coll != TD_PLAN_BARRIER)
        snprintf(buf + n, TD__PLAN_TEXT - (size_t)n, ", chunk %d%s", o->chunk, name);
}

char *td__plan_op_text(const td__plan *p, int role, int op, char buf[TD__PLAN_TEXT])
{
    const td__plan_op *o = &p->roles[role].ops[op];
    char name[208], size[TD__HUMAN], who[TD__PLAN_ROLE];
    td__plan_role_text(p, role, who);
    named(p, o->chunk, name, sizeof name);
    switch ((td__plan_kind)o->kind) {
    case TD_PLAN_RUN: run_text(o, who, name, buf); break;
    case TD_PLAN_SEND:
    case TD_PLAN_RECV: message_text(p, o, role, name, buf); break;
    case TD_PLAN_COLL: coll_text(p, o, role, name, buf); break;
    case TD_PLAN_UPDATE:
        snprintf(buf, TD__PLAN_TEXT, "%s: update of the params of chunk %d%s", who, o->chunk, name);
        break;
    case TD_PLAN_COPY:
        snprintf(buf, TD__PLAN_TEXT, "%s: copy of %s of chunk %d%s", who,
                 td__human_bytes((double)o->nbytes, size), o->chunk, name);
        break;
    }
    return buf;
}

/* The text without its rank, which the heading says. */
static const char *without_rank(const char *text)
{
    while (*text && *text != ':')
        text++;
    return *text ? text + 2 : text;
}

void td__plan_print(const td__plan *p, const td__plan_times *times, td__text *out)
{
    char buf[TD__PLAN_TEXT], mesh[TD__RANK_MESH_TEXT], who[TD__PLAN_ROLE];
    td__text_printf(out, "communication plan of a step, %s\n", td__rank_mesh_text(&p->mesh, mesh));
    for (int r = 0; r < td__plan_roles(p); r++) {
        td__text_printf(out, "%s %s: %d operations\n", td__axis_name(p->axis),
                        td__plan_role_text(p, r, who), p->roles[r].n);
        for (int i = 0; i < p->roles[r].n; i++) {
            const td__plan_op *o = &p->roles[r].ops[i];
            if (times)
                td__text_printf(out, "  %9.3f ms", 1e3 * times->begin[r][i]);
            td__text_printf(out, "  %4d  %-16s  %s", i, lane_name(p, o->lane),
                            without_rank(td__plan_op_text(p, r, i, buf)));
            for (int k = 0, any = 0; k < TD__PLAN_AFTER; k++)
                if (o->after[k] != TD__PLAN_NONE)
                    td__text_printf(out, "%s %d", any++ ? "," : "; after", o->after[k]);
            td__text_add(out, "\n");
        }
    }
}

void td__plan_trace(const td__plan *p, const td__plan_times *times, td__text *out)
{
    char buf[TD__PLAN_TEXT], who[TD__PLAN_ROLE];
    const char *comma = "\n";
    td__text_add(out, "[");
    for (int r = 0; r < td__plan_roles(p); r++) {
        td__text_printf(out,
                        "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
                        "\"%s %s\"}}",
                        comma, r, td__axis_name(p->axis), td__plan_role_text(p, r, who));
        comma = ",\n";
        for (int l = 0; l < TD_LANES; l++)
            td__text_printf(out,
                            "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                            "\"args\":{\"name\":\"%s\"}}",
                            comma, r, l, lane_name(p, l));
        for (int i = 0; i < p->roles[r].n; i++) {
            td__text_printf(out, "%s{\"name\":", comma);
            td__text_json(out, without_rank(td__plan_op_text(p, r, i, buf)));
            td__text_printf(out, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}", r,
                            p->roles[r].ops[i].lane, 1e6 * times->begin[r][i],
                            1e6 * (times->end[r][i] - times->begin[r][i]));
        }
    }
    td__text_add(out, "\n]\n");
}
