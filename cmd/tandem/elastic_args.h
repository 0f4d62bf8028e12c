/* elastic_args.h -- the flags of commands that start ranks which may come and go. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_ELASTIC_ARGS_H
#define TD_CMD_ELASTIC_ARGS_H

#include "command.h"
#include "launch/launch.h"

/* clang-format off */
#define TD_FLAGS_ELASTIC \
    {"elastic", 0, NULL, "replace ranks that fail; the others continue meanwhile", NULL}, \
    {"spares", 0, "K", "elastic: spare processes that wait for a place (0)", NULL}, \
    {"restarts", 0, "K", "fixed ranks: start all again after a failure, up to K times (0); " \
                         "elastic: give up after K failures without a step forward (5)", NULL}, \
    {"heartbeat", 0, "TIME", "heartbeat interval of ranks (200ms)", NULL}, \
    {"lease", 0, "TIME", "kill a process that is silent for so long (elastic: 1s; fixed ranks: " \
                         "as --hang, else never)", NULL}, \
    {"hang", 0, "TIME", "kill a process without a step for so long (elastic: 240s; fixed ranks: " \
                        "never; 0: never)", NULL}
/* clang-format on */

/* "5s", "200ms" or "5": from a millisecond to 2,000,000 seconds. */
bool td__parse_ms(const char *text, uint32_t *out);
/* Sets what these flags ask for in *o; o->most > 0 then: an elastic launch. An exit status. */
int td__elastic_args(const td__args *a, td__launch_opts *o);

#endif
