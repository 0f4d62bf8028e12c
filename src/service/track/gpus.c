/* gpus.c -- see gpus.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/gpus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int td__gpus_of_machine(void)
{
    int n = 0;

    for (char path[32]; n < TD__MOST_GPUS; n++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", n);
        if (access(path, F_OK))
            break;
    }
    return n;
}

void td__gpus_init(td__gpus *g, int64_t n)
{
    if (g->n)
        return;
    g->n = n < 0 ? td__gpus_of_machine() : n > TD__MOST_GPUS ? TD__MOST_GPUS : (int)n;
}

bool td__gpus_take(td__gpus *g, const char *token, int n, int *ids)
{
    int found = 0;

    for (int i = 0; i < g->n && found < n; i++)
        if (!g->owner[i][0])
            ids[found++] = i;
    if (found < n)
        return false;
    for (int i = 0; i < n; i++)
        td__gpus_mark(g, token, ids[i]);
    return true;
}

void td__gpus_mark(td__gpus *g, const char *token, int id)
{
    if (id >= 0 && id < TD__MOST_GPUS)
        snprintf(g->owner[id], sizeof g->owner[id], "%s", token);
}

void td__gpus_release(td__gpus *g, const char *token)
{
    for (int i = 0; i < TD__MOST_GPUS; i++)
        if (!strcmp(g->owner[i], token))
            g->owner[i][0] = '\0';
}

char *td__gpus_text(const int *ids, int n, char *buf, size_t nbytes)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; i < n && used < nbytes; i++)
        used += (size_t)snprintf(buf + used, nbytes - used, "%s%d", i ? "," : "", ids[i]);
    return buf;
}
