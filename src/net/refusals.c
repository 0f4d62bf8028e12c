/* refusals.c -- see refusals.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/refusals.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { LOG_MOST = 8, LOG_MS = 10000 };

static bool logged_before(td__refusals *r, const char *source)
{
    enum { SOURCES = TD__REFUSALS_SOURCES };
    int known = r->n_logged < SOURCES ? r->n_logged : SOURCES;
    char *to = r->logged[r->n_logged % SOURCES];

    for (int i = 0; i < known; i++)
        if (strncmp(r->logged[i], source, TD__REFUSALS_SOURCE - 1) == 0)
            return true;
    snprintf(to, TD__REFUSALS_SOURCE, "%.*s", TD__REFUSALS_SOURCE - 1, source);
    r->n_logged = r->n_logged < 2 * SOURCES - 1 ? r->n_logged + 1 : SOURCES;
    return false;
}

void td__refusals_log(td__refusals *r, const char *source, const char *why)
{
    if (td__deadline_passed(r->until)) {
        r->until = td__deadline_in_ms(LOG_MS);
        r->n_lines = 0;
    }
    if (r->n_lines == LOG_MOST || logged_before(r, source))
        return;
    bool last = ++r->n_lines == LOG_MOST;
    TD_LOG(WARN, NET, "refused a connection from %s: %s (further ones from it are not logged%s)",
           source, why, last ? "; further refusals from any address are suppressed for 10 s" : "");
}
