/* strategy.c -- parallel.strategy: one word for how a job is distributed. It becomes the keys that
 * it stands for, before these are resolved; what the job says itself stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "job/job_impl.h"

td_status td__job_default(td__arena *a, td__tree *given, const char *section, const char *key,
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

/* Every rank has all weights, and the result is that of one rank: no key that says otherwise. */
static td_status check_replicas(const td__tree *given, const td__tree *strategy)
{
    static const struct {
        const char *key, *off;
    } OTHERS[] = {
        {"pipeline", "1"}, {"tensor", "1"}, {"zero", "0"}, {"compress", "none"}, {"backup", "0"}};
    const td__tree *p = td__tree_get(given, "parallel"), *sync, *t;
    for (int i = 0; i < TD_LEN(OTHERS); i++) {
        t = td__tree_get(p, OTHERS[i].key);
        if (t && t->kind == TD_TREE_SCALAR && strcmp(t->text, OTHERS[i].off) != 0)
            return TD_FAIL(TD_EINVAL,
                           "%s: parallel.%s: not with parallel.strategy: %s, where every rank has "
                           "all weights and the result of one rank; leave one of them out",
                           td__tree_where(t).text, OTHERS[i].key, strategy->text);
    }
    sync = td__tree_get(td__tree_get(given, "train"), "sync");
    t = sync && sync->kind == TD_TREE_MAP ? td__tree_get(sync, "rule") : sync;
    if (t && t->kind == TD_TREE_SCALAR && td__sync_named(t->text) &&
        strncmp(t->text, "exact-", strlen("exact-")) != 0)
        return TD_FAIL(TD_EINVAL,
                       "%s: train.sync: the sync rule %s is not for parallel.strategy: %s, which "
                       "is the exact rule that fits; leave one of them out",
                       td__tree_where(t).text, t->text, strategy->text);
    t = td__tree_get(p, "transport");
    const char *other = strcmp(strategy->text, "mirrored") == 0 ? "tcp" : "shm";
    if (t && t->kind == TD_TREE_SCALAR && strcmp(t->text, other) == 0)
        return TD_FAIL(TD_EINVAL,
                       "%s: parallel.transport: %s is not for parallel.strategy: %s, whose ranks "
                       "%s; leave one of them out",
                       td__tree_where(t).text, other, strategy->text,
                       *other == 't' ? "share the memory of one host" : "may be on several hosts");
    return TD_OK;
}

/* Nothing that is for other strategies. */
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
        const td__tree *servers = td__tree_get(p, "servers");
        if (servers && servers->kind == TD_TREE_SCALAR && strcmp(servers->text, "0") == 0)
            return TD_FAIL(TD_EINVAL,
                           "%s: parallel.servers: 0 is not for parallel.strategy: %s; leave one of "
                           "them out",
                           td__tree_where(servers).text, s->text);
        TD_TRY(td__job_default(a, given, "parallel", "servers", "1", s));
        return td__job_default(a, given, "train", "sync", "asgd", s);
    }
    if (strcmp(s->text, "mirrored") != 0 && strcmp(s->text, "multi-worker") != 0)
        return TD_OK; /* the table of keys says so */
    TD_TRY(without_servers(given, s));
    TD_TRY(check_replicas(given, s));
    if (strcmp(s->text, "mirrored") != 0)
        return TD_OK;
    TD_TRY(td__job_default(a, given, "parallel", "devices", "all", s));
    return td__job_default(a, given, "parallel", "transport", "shm", s);
}
