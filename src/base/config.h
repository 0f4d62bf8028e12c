/* config.h -- the one door to the environment. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_CONFIG_H
#define TD_BASE_CONFIG_H

/* The variables that the library reads: identifier, name, what it does. */
#define TD_ENV_MAP(X)                                                                 \
    X(ISA, "TANDEM_ISA", "highest instruction set to use: scalar, avx2, avx512, ...") \
    X(LOG, "TANDEM_LOG", "log levels: \"debug\" or \"graph=debug,backend=trace\"")

typedef enum td__env {
#define X(id, name, help) TD_ENV_##id,
    TD_ENV_MAP(X)
#undef X
        TD_ENV_COUNT
} td__env;

/* The variable's value; NULL when it is not set or empty. */
const char *td__env_get(td__env var);
const char *td__env_name(td__env var);
const char *td__env_help(td__env var); /* what it does, one line */

#endif
