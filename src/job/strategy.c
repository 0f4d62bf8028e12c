/* strategy.c -- parallel.strategy: one word for how a job is distributed. It becomes the keys that
 * it stands for, before these are resolved; what the job says itself stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "job/job_impl.h"

/* A key of a section of the job, with a value unless it has one. */
static td_status put(td__arena *a, td__tree *given, const char *section, const char *key,
                     const char *value, const td__tree *where)
{
    td__tree *s = td__tree_get(given, section), *v;
    if (!s) {
        s = td__tree_new(a, TD_TREE_MAP, where);
        if (!s)
            return TD_FAIL(TD_ENOMEM, "job: out of memory");
        td__tree_append(given, section, s);
    }
    if (s->kind != TD_TREE_MAP || td__tree_get(s, key)) /* the first is refused where keys are */
        return TD_OK;
    v = td__tree_scalar(a, value, where);
    if (!v)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    td__tree_append(s, key, v);
    return TD_OK;
}

/* Every rank has all weights: nothing that is for other strategies. */
static td_status without_servers(const td__tree *given, const td__tree *strategy)
{
    const td__tree *p = td__tree_get(given, "parallel"), *servers = td__tree_get(p, "servers");
    if (servers && servers->kind == TD_TREE_SCALAR && strcmp(servers->text, "0") != 0)
        return TD_FAIL(TD_EINVAL,
                       "%s: parallel.strategy: %s has no parameter servers: leave parallel.servers "
                       "out, or use parameter-server",
                       td__tree_where(strategy).text, strategy->text);
    return TD_OK;
}

td_status td__strategy_expand(td__arena *a, td__tree *given)
{
    const td__tree *p = given->kind == TD_TREE_MAP ? td__tree_get(given, "parallel") : NULL;
    const td__tree *s = p && p->kind == TD_TREE_MAP ? td__tree_get(p, "strategy") : NULL;
    if (!s || s->kind != TD_TREE_SCALAR)
        return TD_OK;
    if (strcmp(s->text, "parameter-server") == 0) {
        TD_TRY(put(a, given, "parallel", "servers", "1", s));
        return put(a, given, "train", "sync", "asgd", s);
    }
    if (strcmp(s->text, "mirrored") != 0 && strcmp(s->text, "multi-worker") != 0)
        return TD_OK; /* the table of keys says so */
    TD_TRY(without_servers(given, s));
    return strcmp(s->text, "mirrored") == 0 ? put(a, given, "parallel", "transport", "shm", s)
                                            : TD_OK;
}
