/* split.c -- sub-groups of a communicator: colors and keys are gathered by the parent, every rank
 * works out its group, and the maker of the parent gives the group its meshes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm_impl.h"

/* The ranks of `color`, by (key, rank), from all[rank] = {color, key}; returns how many. */
static int members(const int32_t (*all)[2], int size, int color, int *ranks)
{
    int n = 0;

    for (int r = 0; r < size; r++) {
        if (all[r][0] != color)
            continue;
        int at = n++;
        for (; at > 0 && all[ranks[at - 1]][1] > all[r][1]; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = r;
    }
    return n;
}

static td_status make_group(td_comm *parent, int color, const td_comm_opts *given, const int *ranks,
                            int n, td_comm **out)
{
    td__comm_parts parts = {.rank = 0, .size = n, .tls = parent->tls};
    char key[96], name[sizeof parent->name];
    td__deadline until = td__deadline_in_ms(parent->timeout_ms);

    while (ranks[parts.rank] != parent->rank)
        parts.rank++;
    snprintf(key, sizeof key, "%s.%llu.%d", parent->name, (unsigned long long)parent->splits,
             color);
    snprintf(name, sizeof name, "%.30s.%llu.%d", parent->name, (unsigned long long)parent->splits,
             color);
    td_comm_opts opts = {
        .name = name,
        .engine = parent->engine[0] ? parent->engine : NULL,
        .algo = parent->algo[0] ? parent->algo : NULL,
        .timeout_ms = given && given->timeout_ms ? given->timeout_ms : parent->timeout_ms,
        .stall_ms = given && given->stall_ms ? given->stall_ms : parent->stall_ms,
    };
    if (n > 1) {
        if (!parent->hooks.split)
            return TD_FAIL(TD_ENOTSUP, "%s: this communicator cannot be split", parent->name);
        TD_TRY(parent->hooks.split(parent->hooks.user, parent, ranks, n, parts.rank, key, until,
                                   &parts));
    }
    td_status st = td__comm_assemble(&parts, &opts, out);
    if (st) {
        if (parts.hooks.detach)
            parts.hooks.detach(parts.hooks.user);
        td__mesh_destroy(parts.hosts);
        td__mesh_destroy(parts.local);
        td__mesh_destroy(parts.mesh);
    }
    return st;
}

td_status td__comm_split_with(td_comm *parent, int color, int key, const td_comm_opts *given,
                              td_comm **out)
{
    td_status st;

    if (!parent || !out)
        return TD_FAIL(TD_EINVAL, "split: the communicator or out is NULL");
    *out = NULL;
    size_t n = (size_t)parent->size;
    int32_t(*all)[2] = td__calloc(n, sizeof *all);
    int *ranks = td__calloc(n, sizeof *ranks);
    if (!all || !ranks) {
        st = TD_FAIL(TD_ENOMEM, "splitting %d ranks", parent->size);
        goto done;
    }
    const int32_t mine[2] = {color < 0 ? -1 : color, key};
    TD_TRY_OR(st, done, td_all_gather(parent, mine, all, 2, TD_I32, NULL));
    parent->splits++;
    if (color >= 0) {
        int count = members((const int32_t(*)[2])all, parent->size, color, ranks);
        TD_TRY_OR(st, done, make_group(parent, color, given, ranks, count, out));
    }
done:
    td__free(ranks);
    td__free(all);
    return st;
}

td_status td_comm_split(td_comm *parent, int color, int key, td_comm **out)
{
    return td__comm_split_with(parent, color, key, NULL, out);
}
