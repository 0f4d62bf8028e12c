/* trained.h -- commands that use a trained model, on one rank or on several that divide it among
 * them: with -n the command checks what it can and starts itself in so many ranks, of which rank 0
 * prints, writes, and says why something failed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_TRAINED_H
#define TD_CMD_TRAINED_H

#include "ranks.h"
#include "session.h"

#define TD_FLAG_TRAINED_RANKS                                                                    \
    {                                                                                            \
        .name = "ranks", .letter = 'n', .value = "N",                                            \
        .help = "ranks on this host, each with a part of the model, for models that one worker " \
                "cannot hold; the result does not depend on it (1)"                              \
    }
#define TD_FLAG_TRAINED_PARALLEL                                                              \
    {                                                                                         \
        .name = "parallel", .value = "AXES",                                                  \
        .help = "how these ranks divide it, e.g. pipeline=4, or tensor=2 (as it was trained)" \
    }

typedef struct td__trained {
    td__session session;
    td__checkpoint_info info;
    td__part part;
    td__dataset *samples;
    char input[TD__PATH]; /* of --input */
    bool looks;           /* ranks are to be started: no more than a check is wanted */
} td__trained;

/* The session that the command line is about, and the samples. */
TD_NODISCARD td_status td__trained_open(td__trained *t, const td__args *a);
/* Does this process print and write? */
bool td__trained_leads(const td__trained *t);

/* The command, from its flags to its exit status. use: what it does on each rank, from
 * td__trained_open() on; with t->looks, up to there. */
typedef td_status td__trained_use(td__trained *t, const td__args *a);
int td__trained_run(const td__args *a, const td__command *c, td__trained_use *use);

#endif
