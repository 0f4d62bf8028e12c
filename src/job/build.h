/* build.h -- a model in the making, shared by the files that make it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_BUILD_H
#define TD_JOB_BUILD_H

#include "job/layer.h"

enum { TD__MAX_TAPS = 256, TD__MAX_LAYERS = 20000 };

struct td__build {
    td__job *job;
    td_graph *g;
    td__arena *arena;
    int64_t rows;
    td__model_nodes *out;
    const td__field *target;
    struct {
        const char *name;
        td_node *node;
    } taps[TD__MAX_TAPS];
    int n_taps;
    int n_layers;
    const td__tree *last; /* the layer that was built last, and its name; NULL: none */
    const char *last_name;
    int64_t params, max_params;
    bool record; /* rows of the layer table are wanted */
    int trained; /* with model.freeze: params that are not frozen, and the first of them */
    char example[80];
    td_status status; /* the first failure, and its text */
    char error[512];
};

/* The data field as an input of the graph, made when first asked for; NULL if there is none. */
td_node *td__build_input(td__build *b, const char *name);
/* model.freeze (warm.c): is the param frozen; has each pattern matched, and is anything left to
 * train? */
bool td__build_frozen(void *build, const char *name);
TD_NODISCARD td_status td__build_check_frozen(const td__build *b);
/* A failure: the first one stays. */
td_status td__build_fail(td__build *b, td_status st);
/* "(N, 4, 26)": the shape for any number of samples. */
char *td__build_shape_text(const td_shape *s, char *text, size_t nbytes);
/* Loss, metrics and output of the model whose last value is y. */
TD_NODISCARD td_status td__build_heads(td__build *b, td_node *y);

#endif
