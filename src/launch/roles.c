/* roles.c -- see roles.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/roles.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static const char WORKER[] = "worker";

static td_status add(td__roles *r, const char *name, size_t length, long count)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const td__role *last = r->n ? &r->role[r->n - 1] : NULL;
    if (!length || length >= TD_ROLE_NAME || strspn(name, LETTERS) < length || count < 1 ||
        count > INT_MAX)
        return TD_FAIL(TD_EINVAL, "\"%.40s\": expected NAME:COUNT, such as chief:1,ps:2", name);
    if (r->n == TD_ROLES)
        return TD_FAIL(TD_EINVAL, "more than %d roles", (int)TD_ROLES);
    for (int i = 0; i < r->n; i++)
        if (!strncmp(r->role[i].name, name, length) && !r->role[i].name[length])
            return TD_FAIL(TD_EINVAL, "role %s is named twice", r->role[i].name);
    td__role *one = &r->role[r->n++];
    *one = (td__role){.first = last ? last->first + last->count : 0, .count = (int)count};
    memcpy(one->name, name, length);
    return TD_OK;
}

td_status td__roles_parse(const char *text, int size, td__roles *out)
{
    long used = 0;
    bool workers = false;
    *out = (td__roles){0};
    for (const char *s = text; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL) {
        size_t length = strcspn(s, ":,");
        char *end = (char *)(uintptr_t)s + length;
        long count = *end == ':' ? strtol(s + length + 1, &end, 10) : 1;
        if ((*end && *end != ',') || end == s + length + 1)
            count = 0;
        TD_TRY(add(out, s, length, count));
        used += count;
        workers |= !strcmp(out->role[out->n - 1].name, WORKER);
        if (used > size)
            return TD_FAIL(TD_EINVAL, "%ld ranks and more have a role, but there are %d", used,
                           size);
    }
    if (used == size)
        return TD_OK;
    if (workers)
        return TD_FAIL(TD_EINVAL, "%ld of %d ranks have a role; leave the number of workers out",
                       used, size);
    return add(out, WORKER, strlen(WORKER), size - used);
}

const td__role *td__roles_of(const td__roles *r, int rank)
{
    int i = 0;
    while (i < r->n - 1 && rank >= r->role[i].first + r->role[i].count)
        i++;
    return &r->role[i];
}

bool td__role_serves(const td__role *r)
{
    return !strcmp(r->name, "ps");
}

int td__roles_working(const td__roles *r)
{
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += td__role_serves(&r->role[i]) ? 0 : r->role[i].count;
    return n;
}
