/* params.h -- params beyond tandem/program.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_PARAMS_H
#define TD_GRAPH_PARAMS_H

#include "tandem/program.h"
#include "tandem/tensor.h"

/* As td_params_create; with seed NULL all are zeros, in pages that nobody has touched yet. */
TD_NODISCARD td_status td__params_create(const td_program *p, const uint64_t *seed,
                                         td_params **out);
/* td_params_digest; before(user, i), if not NULL, is called before the values of tensor i are read,
 * in an order that depends on the names alone. */
TD_NODISCARD td_status td__params_digest(const td_params *ps, td_status (*before)(void *, int),
                                         void *user, char hex[65]);
/* Does the file hold exactly these tensors? */
TD_NODISCARD td_status td__params_check_file(const td_params *ps, const td_safetensors *s,
                                             const char *path);

#endif
