/* generate.h -- texts from a trained language model, one token after the other.
 *
 * The model sees the last `context` tokens and says how likely each next one is; one is drawn and
 * joins them. What is drawn depends on (seed, position) alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_GENERATE_H
#define TD_API_GENERATE_H

#include "api/session.h"

typedef struct td__generate_opts {
    const char *prompt; /* "": a line end */
    int64_t tokens;     /* to generate */
    double temperature; /* 0: the likeliest always */
    int64_t top_k;      /* draw among so many; 0: among all */
    uint64_t seed;
} td__generate_opts;

/* One piece of text: the prompt, then a token at a time. */
typedef td_status (*td__generate_sink)(void *user, const char *text, size_t nbytes);

/* A session of a trained model (td__session_trained with sample_only) whose data are a text. */
TD_NODISCARD td_status td__generate(td__session *s, const td__generate_opts *o,
                                    td__generate_sink sink, void *user);

#endif
