/* export.h -- a trained model for other programs: as an ONNX file, and as a PyTorch module.
 *
 * Both walk over the graph of the model as the layers made it, before any rewriting, from the
 * leaves that the output needs. The graph is built for two numbers of rows: sizes that differ
 * between them follow from the number of rows, and are left open. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_EXPORT_EXPORT_H
#define TD_EXPORT_EXPORT_H

#include "tandem/graph.h"
#include "tandem/tensor.h"

typedef struct td__export {
    const td_node *output;         /* of the graph for some number of rows */
    const td_node *other;          /* the same node of the graph for another number */
    const td_safetensors *weights; /* params and states, by name */
    const char *about;             /* a line for the head of the file: run and step */
} td__export;

TD_NODISCARD td_status td__export_onnx(const td__export *e, const char *path);
/* The text of a module; `more` is put behind it, weights is the file that it loads. */
TD_NODISCARD td_status td__export_torch(const td__export *e, const char *weights, const char *more,
                                        const char *path);

#endif
