/* tandem/plugin.h -- layers, losses, metrics, map functions, gradient hooks and sync rules of one's
 * own, in a shared object that a job names:
 *
 *     static td_node *swish(td_graph *g, const char *name, td_node *x, const td_plugin_args *with)
 *     {
 *         double beta = td_plugin_arg(with, "beta", 1);
 *         return td_mul(g, x, td_sigmoid(g, td_affine(g, x, beta, 0)));
 *     }
 *     static const td_plugin_layer LAYERS[] = {{"swish", "x sigmoid(beta x)", swish}};
 *     const td_plugin *td_plugin_get(void)
 *     {
 *         static const td_plugin P = {TD_PLUGIN_HEAD, .name = "mine", .layers = LAYERS,
 *                                     .n_layers = 1};
 *         return &P;
 *     }
 *
 *     cc -shared -fPIC mine.c -o mine.so $(pkg-config --cflags tandem)
 *
 *     plugin: mine.so                                    # job.yaml, beside mine.so
 *     model: [flatten, linear, {plugin: swish, with: [beta=1.5]}, linear]
 *
 * Calls     A plug-in calls the functions of the other headers; they are those of the program that
 *           loads it, so it is not linked with libtandem.
 * Where     Plug-ins are loaded by `tandem` from a job file that is named on its command line:
 *           never from a run's copy of a job, from a submitted job or from the network. All ranks
 *           load the same file.
 * ABI       Structs only grow at their ends, and td_plugin says how large each was when the plug-in
 *           was built (TD_PLUGIN_HEAD): what it does not have yet is zero, which means as before.
 *           `abi` changes when that is not enough. A plug-in of another abi is refused, and one
 *           that was built for a later version than the program's.
 * Bits      What is built from operators has their bits. Gradient hooks and sync rules promise
 *           what they do themselves.
 * Failure   NULL or a td_status. Own texts: td_plugin_fail(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLUGIN_H
#define TD_PLUGIN_H

#include <string.h>

#include "tandem/coll.h"
#include "tandem/data.h"
#include "tandem/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_PLUGIN_ABI = 2 };

/* Numbers that the job gives: `with: [beta=1.5, width=3]`. */
typedef struct td_plugin_args {
    int n;
    const char *const *name;
    const double *value;
} td_plugin_args;

static inline double td_plugin_arg(const td_plugin_args *a, const char *name, double otherwise)
{
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->name[i], name))
            return a->value[i];
    return otherwise;
}

/* Records a text for the failure, which the user is told, and returns the status. */
TD_API td_status td_plugin_fail(td_status st, const char *text);

/* x (rows, ...) -> (rows, ...). Params are named "NAME.weight" by their layer's name. Called for
 * several numbers of rows, with the same nodes for each, except for their shapes. */
typedef struct td_plugin_layer {
    const char *name, *help;
    td_node *(*build)(td_graph *g, const char *name, td_node *x, const td_plugin_args *with);
} td_plugin_layer;

/* An f32 scalar, the mean over rows. Losses of numbers get an output and a target of one shape,
 * those of classes an output (rows, ..., classes) and a target (rows, ...) of class numbers. */
typedef struct td_plugin_loss {
    const char *name, *help;
    bool classes;
    td_node *(*build)(td_graph *g, td_node *output, td_node *target);
} td_plugin_loss;

typedef struct td_plugin_metric {
    const char *name, *help;
    bool higher_is_better;
    td_node *(*build)(td_graph *g, td_node *output, td_node *target);
} td_plugin_metric;

/* Changes field "x" of every sample. out is a copy of in at first: change dtype and shape. apply is
 * called by several threads at once; it draws by s alone, and only if s->random. */
typedef struct td_plugin_map {
    const char *name, *help;
    td_status (*shape)(const td_field *in, td_field *out);
    void (*apply)(const td_field *in, const td_sample *s, const void *x, void *y);
} td_plugin_map;

/* Where a rule is called. */
typedef struct td_plugin_step {
    td_comm *comm; /* all ranks; NULL: one rank alone */
    int rank, ranks;
    uint64_t step; /* from 1 */
    size_t begin;  /* place of the first element in the gradient block, or the params */
    bool meeting;  /* params: ranks meet (validation, checkpoint, end): all must have the same */
} td_plugin_step;

/* How ranks make progress together; both functions are optional.
 *
 * gradients   A gradient hook: bucket in, bucket out. data holds this rank's part of the batch's
 *             gradient (the parts of all ranks add up to it), and is to become what this rank
 *             updates its params with. The buckets of a step come in order, on all ranks alike.
 *             Left out: the sum over ranks (td_allreduce).
 * params      After each update, and when ranks meet: what this rank's params become, by an
 *             exchange with the others. Left out: all ranks have the same params. */
typedef struct td_plugin_sync {
    const char *name, *help;
    td_status (*gradients)(const td_plugin_step *s, float *data, size_t n);
    td_status (*params)(const td_plugin_step *s, float *params, size_t n);
} td_plugin_sync;

typedef struct td_plugin {
    uint32_t abi,
        size; /* TD_PLUGIN_HEAD sets these; bytes of this struct, and of one of each list */
    uint32_t layer_size, loss_size, metric_size, map_size, sync_size;
    const char *name;
    const td_plugin_layer *layers;
    int n_layers;
    const td_plugin_loss *losses;
    int n_losses;
    const td_plugin_metric *metrics;
    int n_metrics;
    const td_plugin_map *maps;
    int n_maps;
    const td_plugin_sync *syncs;
    int n_syncs;
} td_plugin;

/* The first members of a td_plugin: what the plug-in was built for. */
#define TD_PLUGIN_HEAD                                                                      \
    .abi = TD_PLUGIN_ABI, .size = sizeof(td_plugin), .layer_size = sizeof(td_plugin_layer), \
    .loss_size = sizeof(td_plugin_loss), .metric_size = sizeof(td_plugin_metric),           \
    .map_size = sizeof(td_plugin_map), .sync_size = sizeof(td_plugin_sync)

/* What a plug-in defines, with default visibility. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const td_plugin *
td_plugin_get(void);

#ifdef __cplusplus
}
#endif
#endif
