/* engine_onednn.h -- what the CPU backend has of oneDNN: products, and convolutions (conv.h). A
 * build without it (-DTD_ONEDNN=OFF) has the same functions from onednn_none.c, which refuse, so
 * that our own kernels, or the reference kernels, take the work. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_ENGINE_ONEDNN_H
#define TD_BACKEND_CPU_ENGINE_ONEDNN_H

#include "backend/cpu/product.h"

/* "2.6.3"; NULL: this build has none. */
const char *td__onednn_version(void);

/* oneDNN runs its primitives on an OpenMP team; a worker is one thread. The size of the calling
 * thread's team becomes one; what it was, to restore it. */
unsigned td__onednn_alone(void);
void td__onednn_restore(unsigned team);

/* As td__product_init() and its kin, of a product whose onednn is not NULL afterwards. TD_ENOTSUP,
 * without a text: ours is to be taken. */
TD_NODISCARD td_status td__product_onednn_init(td__product *p);
void td__product_onednn_fini(td__product *p);
TD_NODISCARD td_status td__product_onednn_pack(const td__product *p, void *packed, const void *b,
                                               void *scratch);
TD_NODISCARD td_status td__product_onednn_run(const td__product *p, void *c, void *pre,
                                              const void *a, const void *b, const float *bias,
                                              void *scratch);

#endif
