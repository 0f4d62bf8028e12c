/* params.h -- params beyond tandem/program.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_PARAMS_H
#define TD_GRAPH_PARAMS_H

#include "tandem/program.h"

/* As td_params_create; with seed NULL all are zeros, in pages that nobody has touched yet. */
TD_NODISCARD td_status td__params_create(const td_program *p, const uint64_t *seed,
                                         td_params **out);

#endif
