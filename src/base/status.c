/* status.c -- names and texts of the status codes, from the one list in tandem/status.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tandem/status.h"

const char *td_status_name(td_status st)
{
    switch (st) {
#define X(name, value, text) \
    case TD_##name: return #name;
        TD_STATUS_MAP(X)
#undef X
    }
    return "UNKNOWN";
}

const char *td_status_text(td_status st)
{
    switch (st) {
#define X(name, value, text) \
    case TD_##name: return text;
        TD_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}
