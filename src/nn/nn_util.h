/* nn_util.h -- what the layers share: params under a layer's name, names made with printf, checks
 * of what a layer is given. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NN_NN_UTIL_H
#define TD_NN_NN_UTIL_H

#include "tandem/nn.h"

/* "layer.name" as a param or state. `init` if not NULL, else `standard`. */
td_node *td__nn_param(td_graph *g, const char *layer, const char *name, td_shape shape,
                      const td_init *init, td_init standard);
td_node *td__nn_state(td_graph *g, const char *layer, const char *name, td_shape shape,
                      td_init init);

/* Is x there, with min to max axes? If so its shape; if not an error of g that names call, layer
 * and shape (none if g has one already). */
bool td__nn_shape(td_graph *g, const char *call, const char *layer, const td_node *x, int min,
                  int max, td_shape *shape);

/* A name by value, to be used within the expression: td__nn_name("layer%d.%d", 1, 0).text. */
typedef struct td__nn_text {
    char text[200];
} td__nn_text;
td__nn_text td__nn_name(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static inline td_init td__nn_uniform(double bound)
{
    return (td_init){.kind = TD_INIT_UNIFORM, .a = -bound, .b = bound};
}
static inline td_init td__nn_normal(double std)
{
    return (td_init){.kind = TD_INIT_NORMAL, .b = std};
}
static inline td_init td__nn_zeros(void)
{
    return (td_init){.kind = TD_INIT_ZEROS};
}
static inline td_init td__nn_ones(void)
{
    return (td_init){.kind = TD_INIT_ONES};
}

/* value, or `standard` where it is 0. */
static inline int64_t td__nn_or(int64_t value, int64_t standard)
{
    return value ? value : standard;
}

/* (B, ...) -> (B, the rest). */
td_node *td__nn_flatten(td_graph *g, td_node *x);

/* y (B, T, 3E), the projected queries, keys and values -> attention in `heads` heads, (B, T, E). */
td_node *td__nn_attend(td_graph *g, td_node *qkv, int heads, const td_nn_attention_opts *o);

#endif
