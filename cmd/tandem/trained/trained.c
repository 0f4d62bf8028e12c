/* trained.c -- see trained.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "trained.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "check_pipeline.h"

td_status td__trained_open(td__trained *t, const td__args *a)
{
    td__session *s = &t->session;
    TD_TRY(td__args_input(s, a, t->input));
    TD_TRY(td__args_trained(s, a, &t->info));
    s->input = NULL;
    return td__session_part(s, td__args_value(a, "part"), &t->part, &t->samples);
}

bool td__trained_leads(const td__trained *t)
{
    return td__session_rank(&t->session) == 0;
}

/* Can the model be cut so? What follows from the flags alone has been checked. */
static td_status look(const td__trained *t, int ranks)
{
    if (t->session.opts.sync.mesh.size[TD_AXIS_PIPELINE] > 1)
        TD_TRY(td__check_cut(&t->session, ranks, false));
    return td__session_check_tensor((td__session *)&t->session);
}

static td_status use_here(td__trained *t, const td__args *a, td__trained_use *use)
{
    td_status st = use(t, a);
    if (!st && t->looks)
        return look(t, t->session.starts);
    if (!st && t->session.comm) /* nobody leaves before rank 0 has written its file */
        st = td_barrier(t->session.comm, NULL);
    return td__session_told(&t->session, st);
}

int td__trained_run(const td__args *a, const td__command *c, td__trained_use *use)
{
    const char *ranks = td__args_value(a, "ranks");
    int n = 1, rc;
    if (ranks && strchr(ranks, ':'))
        return td__usage_error(a, "-n %.60s: a trained model is used by a fixed number of ranks",
                               ranks);
    bool starts = td__ranks_wanted(a, &n, &rc);
    if (rc)
        return rc;
    td__trained *t = td__calloc(1, sizeof *t);
    if (!t)
        return td__failure(a, TD_FAIL(TD_ENOMEM, "no memory for a session"));
    t->looks = starts;
    t->session.joins = true;
    t->session.starts = starts ? n : td__args_has(a, "parallel");
    td_status st = use_here(t, a, use);
    if (st)
        rc = td__trained_leads(t) ? td__failure(a, st) : TD_EXIT_FAILED;
    td__session_fini(&t->session);
    td__free(t);
    return starts && !st ? td__ranks_run(a, c, n, 0, NULL, NULL) : rc;
}
