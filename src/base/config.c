/* config.c -- the one door to the environment. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include <stdlib.h>
#include <string.h>

static const char *const NAMES[TD_ENV_COUNT] = {
#define X(id, name, help) [TD_ENV_##id] = name,
    TD_ENV_MAP(X)
#undef X
};

static const char *const HELPS[TD_ENV_COUNT] = {
#define X(id, name, help) [TD_ENV_##id] = help,
    TD_ENV_MAP(X)
#undef X
};

const char *td__env_name(td__env var)
{
    return NAMES[var];
}

const char *td__env_help(td__env var)
{
    return HELPS[var];
}

const char *td__env_get(td__env var)
{
    const char *value = getenv(NAMES[var]);
    return value && *value ? value : NULL;
}
