/* params.h -- params beyond tandem/program.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_PARAMS_H
#define TD_GRAPH_PARAMS_H

#include "device/device.h"
#include "ops/op_pieces.h"
#include "tandem/program.h"
#include "tandem/tensor.h"

/* As td_params_create; with seed NULL all are zeros, in pages that nobody has touched yet. */
TD_NODISCARD td_status td__params_create(const td_program *p, const uint64_t *seed,
                                         td_params **out);
/* Params, states and gradients begin at multiples of these: bytes, elements. */
enum { TD_ALIGN = 64, TD_ALIGN_FLOATS = TD_ALIGN / 4 };
/* Elements, with padding: of params with dense gradients, which come first; of params and states.
 */
size_t td__params_dense(const td_params *ps);
size_t td__params_total(const td_params *ps);
/* *copy becomes a copy of `from`, names and numbers, row-major in memory of the host; that of an
 * earlier call (else *copy is NULL) is used again where it fits. */
TD_NODISCARD td_status td__params_copy(const td_params *from, td_params **copy);

/* A row-sparse gradient of a program: rows of one run, and their width. */
typedef struct td__sparse_shape {
    const char *name; /* of the param */
    int64_t rows, width;
} td__sparse_shape;
int td__program_sparse_count(const td_program *p);
td__sparse_shape td__program_sparse(const td_program *p, int i);
/* The input whose values are the rows that a run looks up (and padding); NULL: they are computed
 * from something else. */
const char *td__program_sparse_ids(const td_program *p, int i);

/* Is it a state of that name that no run changes (graph/frozen.h)? */
bool td__program_frozen(const td_program *p, const char *name);

/* The tensors in order of their names, as digests and files have them; free the array. */
TD_NODISCARD td_status td__params_by_name(const td_params *ps, const td_param_info ***out);
/* The number of one of these. */
int td__params_index(const td_params *ps, const td_param_info *info);
/* td_params_digest; before(user, i), if not NULL, is called before the values of tensor i are read,
 * in an order that depends on the names alone. */
TD_NODISCARD td_status td__params_digest(const td_params *ps, td_status (*before)(void *, int),
                                         void *user, char hex[65]);
/* td_params_save and td_params_load, where params need not be there all at once: before(user, i) is
 * called before param i is read or written. */
TD_NODISCARD td_status td__params_save(const td_params *ps, td_status (*before)(void *, int),
                                       void *user, const char *path);
TD_NODISCARD td_status td__params_load(td_params *ps, td_status (*before)(void *, int), void *user,
                                       const char *path);
/* Where the job has param i (ops/node.h); NULL: not known. */
const char *td__params_origin(const td_params *ps, int i);
/* Whose memory the block is in. */
td_device *td__params_device(const td_params *ps);
/* Elements [begin, begin + count) of the block as the host sees them (device/device.h). */
TD_NODISCARD td_status td__params_map(const td_params *ps, size_t begin, size_t count,
                                      td__map_use use, td__mapping *out);
/* How a param lies that is cut into pieces: piece by piece (ops/op_pieces.h); NULL: row-major. So
 * the pieces of a rank are one range, and the others' need no memory. */
const td_attr_pieces *td__params_pieces(const td_params *ps, int i);
/* All of tensor i as users see it: row-major, however it lies. td__mem_map_drop() leaves it as it
 * was. map_at: of another block that is laid out as the params, where the tensor is at `at`. */
TD_NODISCARD td_status td__params_map_tensor(const td_params *ps, int i, td__map_use use,
                                             td__mapping *out);
TD_NODISCARD td_status td__params_map_at(const td_params *ps, int i, float *at, td__map_use use,
                                         td__mapping *out);
TD_NODISCARD td_status td__params_unmap_tensor(const td_params *ps, int i, td__mapping *map);
/* Between both, in memory of the host. */
void td__pieces_pack(const td_attr_pieces *how, float *packed, const float *plain);
void td__pieces_unpack(const td_attr_pieces *how, float *plain, const float *packed);
/* All tensors of such a block, of the host, become row-major. */
TD_NODISCARD td_status td__params_unpack(const td_params *ps, float *block);
/* Elements [begin, begin + count) are not needed for now, and will be written before they are:
 * their whole pages go back to the system. thin: before the first time. */
void td__params_thin(td_params *ps);
void td__params_discard(td_params *ps, size_t begin, size_t count);
/* Fold statistics, which lie behind the gradients of all params, into the states of p. info_of: by
 * slot of p, its param or state; NULL: found by name. */
void td__params_fold(td_params *ps, const td_program *p, const int *info_of, const float *grads);
/* Does the file hold exactly these tensors? */
TD_NODISCARD td_status td__params_check_file(const td_params *ps, const td_safetensors *s,
                                             const char *path);

#endif
