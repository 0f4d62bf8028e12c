/* plan_text.c -- plans for people: names of operations, lists, a timeline. See plan.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/human.h"
#include "ops/phase.h"
#include "plan/plan.h"

static const char *const PHASES[TD_RUN_PHASE_COUNT] = {"forward", "backward", "weight gradients"};
static const char *const COLLS[TD_PLAN_COLLS] = {"allreduce", "reduce-scatter", "all-gather",
                                                 "broadcast"};
static const char *const LANES[TD_LANES] = {"compute",       "send forward",     "receive forward",
                                            "send backward", "receive backward", "collectives",
                                            "copies"};

/* " (conv1 to fc2)", or nothing for a chunk without a name. */
static const char *named(const td__plan *p, int chunk, char *buf, size_t nbytes)
{
    const char *name = chunk < p->n_chunks ? p->chunks[chunk] : NULL;
    snprintf(buf, nbytes, name ? " (%s)" : "%s", name ? name : "");
    return buf;
}

char *td__plan_op_text(const td__plan *p, int role, int op, char buf[TD__PLAN_TEXT])
{
    const td__plan_op *o = &p->roles[role].ops[op];
    char name[96], size[TD__HUMAN];
    named(p, o->chunk, name, sizeof name);
    switch ((td__plan_kind)o->kind) {
    case TD_PLAN_RUN:
        snprintf(buf, TD__PLAN_TEXT, "rank %d: %s of micro-batch %u through chunk %d%s", role,
                 PHASES[o->phase], o->micro_batch, o->chunk, name);
        break;
    case TD_PLAN_SEND:
    case TD_PLAN_RECV:
        if (o->phase == TD__PLAN_TURN) {
            snprintf(buf, TD__PLAN_TEXT, "rank %d: %s the turn to update %s rank %d", role,
                     o->kind == TD_PLAN_SEND ? "send" : "receive",
                     o->kind == TD_PLAN_SEND ? "to" : "from", role + o->peer);
            break;
        }
        snprintf(buf, TD__PLAN_TEXT,
                 "rank %d: %s %s values of micro-batch %u %s rank %d, chunk %d%s", role,
                 o->kind == TD_PLAN_SEND ? "send" : "receive", PHASES[o->phase], o->micro_batch,
                 o->kind == TD_PLAN_SEND ? "to" : "from", role + o->peer, o->chunk, name);
        break;
    case TD_PLAN_COLL:
        snprintf(buf, TD__PLAN_TEXT, "rank %d: %s of %s along %s, chunk %d%s", role, COLLS[o->coll],
                 td__human_bytes((double)o->nbytes, size), td__axis_name((td__axis)o->axis),
                 o->chunk, name);
        break;
    case TD_PLAN_UPDATE:
        snprintf(buf, TD__PLAN_TEXT, "rank %d: update of the params of chunk %d%s", role, o->chunk,
                 name);
        break;
    case TD_PLAN_COPY:
        snprintf(buf, TD__PLAN_TEXT, "rank %d: copy of %s of chunk %d%s", role,
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
    char buf[TD__PLAN_TEXT], mesh[TD__RANK_MESH_TEXT];
    td__text_printf(out, "communication plan of a step, %s\n", td__rank_mesh_text(&p->mesh, mesh));
    for (int r = 0; r < p->mesh.size[TD_AXIS_PIPELINE]; r++) {
        td__text_printf(out, "pipeline rank %d: %d operations\n", r, p->roles[r].n);
        for (int i = 0; i < p->roles[r].n; i++) {
            const td__plan_op *o = &p->roles[r].ops[i];
            if (times)
                td__text_printf(out, "  %9.3f ms", 1e3 * times->begin[r][i]);
            td__text_printf(out, "  %4d  %-16s  %s", i, LANES[o->lane],
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
    char buf[TD__PLAN_TEXT];
    const char *comma = "\n";
    td__text_add(out, "[");
    for (int r = 0; r < p->mesh.size[TD_AXIS_PIPELINE]; r++) {
        td__text_printf(out,
                        "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
                        "\"pipeline rank %d\"}}",
                        comma, r, r);
        comma = ",\n";
        for (int l = 0; l < TD_LANES; l++)
            td__text_printf(out,
                            "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                            "\"args\":{\"name\":\"%s\"}}",
                            comma, r, l, LANES[l]);
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
