/* auto_mesh.c -- see auto_mesh.h.
 *
 * Replicas of the whole model are fastest: every rank works all the time. Stages are added, two,
 * three, as many as divide the ranks, until what the fullest rank would hold (train/memory.h) is no
 * more than its share of the host's memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "auto_mesh.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/human.h"
#include "train/memory.h"

static const double SHARE = 0.9; /* of the host's memory; the rest is for others */

bool td__auto_mesh_wanted(const td__args *a)
{
    const char *text = td__args_value(a, "parallel");
    return text && strncmp(text, "auto", 4) == 0 && (!text[4] || text[4] == ':');
}

/* "200MB", "1.5 GB"; without one, the share of n ranks in this host's memory. */
static td_status limit_of(const char *text, int n, double *out)
{
    static const struct {
        const char *unit;
        double factor;
    } UNITS[] = {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (!text[4]) {
        *out = SHARE * (double)pages * (double)size / n;
        return pages > 0 && size > 0 ? TD_OK
                                     : TD_FAIL(TD_EINVAL, "--parallel auto: how much memory this "
                                                          "host has is not known; say auto:SIZE");
    }
    char *end;
    double value = strtod(text + 5, &end);
    end += strspn(end, " ");
    for (size_t i = 0; end != text + 5 && value > 0 && i < sizeof UNITS / sizeof UNITS[0]; i++)
        if (strcmp(end, UNITS[i].unit) == 0) {
            *out = value * UNITS[i].factor;
            return TD_OK;
        }
    return TD_FAIL(TD_EINVAL, "--parallel: expected auto:SIZE as in auto:200MB, found '%.60s'",
                   text);
}

static td_status need_of(const td__session *s, int n, int stages, int tensor, td__auto_mesh *out)
{
    const char *transport = td__job_parallel_opts(s->job)->transport;
    td__sync_config sync = s->opts.sync;
    td__train_memory m;
    sync.mesh = (td__rank_mesh){{n / stages / tensor, stages, tensor}};
    TD_TRY(
        td__trainer_memory(s->trainer,
                           &(td__memory_case){.ranks = n,
                                              .sync = &sync,
                                              .shared = !transport || strcmp(transport, "tcp") != 0,
                                              .saves = true},
                           &m));
    out->mesh = sync.mesh;
    out->need = (double)m.total;
    return TD_OK;
}

/* Ranks that may share a layer, all on this host: without parallel.tensor_pieces the result would
 * depend on their number. */
static int most_tensor(const td__session *s)
{
    return s->opts.sync.tensor_pieces > 1 ? s->opts.sync.tensor_pieces : 1;
}

/* All arrangements in which a rank has one of `parts` parts of the model; first the one with
 * most stages, whose ranks exchange least. *fits: the last one does. */
static td_status try_parts(const td__session *s, int n, int parts, td__auto_mesh *least,
                           td__auto_mesh *out, bool *fits)
{
    for (int tensor = 1; tensor <= most_tensor(s) && !*fits; tensor *= 2) {
        if (parts % tensor)
            continue;
        td_status st = need_of(s, n, parts / tensor, tensor, out);
        if (st == TD_EINVAL && parts > 1)
            continue; /* the model has not so many layers, or parallel.stages are others */
        TD_TRY(st);
        *fits = out->need <= out->limit;
        if (least->need < 0 || out->need < least->need)
            *least = *out;
    }
    return TD_OK;
}

td_status td__auto_mesh_choose(const td__session *s, const td__args *a, int n, td__auto_mesh *out)
{
    td__auto_mesh least = {.need = -1};
    char need[TD__HUMAN], limit[TD__HUMAN], mesh[TD__RANK_MESH_TEXT];
    TD_TRY(limit_of(td__args_value(a, "parallel"), n, &out->limit));
    bool fits = false;
    for (int parts = 1; parts <= n && !fits; parts++)
        if (n % parts == 0)
            TD_TRY(try_parts(s, n, parts, &least, out, &fits));
    if (fits)
        return TD_OK;
    return TD_FAIL(TD_EINVAL,
                   "--parallel auto: no arrangement of %d ranks fits %s for each; %s needs %s: "
                   "start more ranks, or lower train.batch",
                   n, td__human_bytes(out->limit, limit), td__rank_mesh_text(&least.mesh, mesh),
                   td__human_bytes(least.need, need));
}

td_status td__auto_mesh_find(const td__args *a, const char *job, int n, td__auto_mesh *out)
{
    td__session s = {0};
    td_status st = td__args_job(&s, a, job);
    if (!st)
        st = td__session_data(&s);
    s.opts.blank = s.opts.untrained = true;
    if (!st)
        st = td__session_trainer(&s);
    if (!st)
        st = td__auto_mesh_choose(&s, a, n, out);
    td__session_fini(&s);
    return st;
}

void td__auto_mesh_print(const td__auto_mesh *m)
{
    char need[TD__HUMAN], limit[TD__HUMAN], mesh[TD__RANK_MESH_TEXT];
    printf("parallel auto: %s, %s of a rank's %s\n", td__rank_mesh_text(&m->mesh, mesh),
           td__human_bytes(m->need, need), td__human_bytes(m->limit, limit));
    fflush(stdout); /* before ranks print */
}
