/* source.c -- the list of data sources. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source.h"

#include <string.h>

#include "base/check.h"

static const td__source_def *const SOURCES[] = {
#define TD_SOURCE(name) &td__source_##name,
#include "data/sources.def"
#undef TD_SOURCE
};

const td__source_def *td__source_list(int i)
{
    return i >= 0 && i < TD_LEN(SOURCES) ? SOURCES[i] : NULL;
}

const td__source_def *td__source_find(const char *name)
{
    for (int i = 0; i < TD_LEN(SOURCES); i++)
        if (strcmp(SOURCES[i]->name, name) == 0)
            return SOURCES[i];
    return NULL;
}

td_status td__source_open(const td__source_def *def, const td__source_opts *o, const char *part,
                          const td__fit *fit, const struct td__split *cut, td__dataset **out)
{
    if (fit && def->open_fitted)
        return def->open_fitted(o, part, fit, out);
    return cut && def->open_cut ? def->open_cut(o, part, cut, out) : def->open(o, part, out);
}
