/* reducer.c -- the list of reducers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/reducer.h"

#include <string.h>

static const td__reducer_ops *const reducers[] = {
#define TD_REDUCER(name) &td__reducer_##name,
#include "parallel/reducers.def"
#undef TD_REDUCER
};
enum { REDUCERS = sizeof reducers / sizeof *reducers };

const td__reducer_ops *td__reducer_find(const char *name)
{
    for (int i = 0; i < REDUCERS; i++)
        if (strcmp(reducers[i]->name, name) == 0)
            return reducers[i];
    return NULL;
}

const char *td__reducer_list(int i)
{
    return i >= 0 && i < REDUCERS ? reducers[i]->name : NULL;
}
