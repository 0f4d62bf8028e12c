/* outputs.h -- clients outside the world of a run: they send samples, and get what the model makes
 * of them with the params as they are now.
 *
 * Server 0 listens on a socket of its host, or where parallel.clients says, and says where, with a
 * secret, in a file of the checkpoints' folder; every connection proves the secret first
 * (net/gate.h). What goes to another host is encrypted: beside the file lies the certificate that
 * both sides have (net/tls.h). Its trainer's thread
 * answers between pushes: training goes on meanwhile, and the params of an answer are those of one
 * moment. A message is at most TD_LINK_MOST bytes; what makes no sense is refused with a text, and
 * the run goes on.
 *
 *     client -> server   rows, bytes; then the inputs that the model reads, each (rows, shape...)
 *     server -> client   step, rows, bytes of a row; then the outputs; or a text */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_OUTPUTS_H
#define TD_PS_OUTPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* ---- Server 0 -------------------------------------------------------------------------------- */

typedef struct td__ps_outputs td__ps_outputs;
/* What is asked for. params: (called before the first answer of a turn) all of them are here. */
typedef struct td__ps_outputs_opts {
    const char *folder;
    const char *address; /* HOST:PORT; NULL: for processes of this host alone */
    void *user;
    td_status (*params)(void *user);
    /* As td__sync_host's. */
    td_status (*outputs)(void *user, int64_t rows, const void *samples, size_t nbytes, void **out,
                         size_t *row_nbytes);
} td__ps_outputs_opts;

TD_NODISCARD td_status td__ps_outputs_create(const td__ps_outputs_opts *opts, td__ps_outputs **out);
void td__ps_outputs_destroy(td__ps_outputs *o); /* NULL is allowed; removes the file */
/* Answer what has come, without waiting; step: that the params are of. A failure is one of
 * `params`, not of a client. */
TD_NODISCARD td_status td__ps_outputs_serve(td__ps_outputs *o, uint64_t step);

/* ---- A client -------------------------------------------------------------------------------- */

typedef struct td__ps_live td__ps_live;
/* Of the run whose checkpoints are in this folder. */
TD_NODISCARD td_status td__ps_live_open(const char *folder, td__ps_live **out);
void td__ps_live_close(td__ps_live *l); /* NULL is allowed */
/* Outputs of `rows` samples, of row_nbytes each, in as many messages as it takes. inputs: (n)
 * arrays with nbytes[i] a sample. */
TD_NODISCARD td_status td__ps_live_outputs(td__ps_live *l, int64_t rows, int n,
                                           const void *const *inputs, const size_t *nbytes,
                                           size_t row_nbytes, void *out);
uint64_t td__ps_live_step(const td__ps_live *l); /* of the last answer */

#endif
