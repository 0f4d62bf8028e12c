/* model.h -- what the trainer knows of a model: a function that builds it for any batch size. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_MODEL_H
#define TD_STEP_MODEL_H

#include "data/loader.h"
#include "run/result.h"
#include "tandem/graph.h"

enum { TD__MAX_MODEL_INPUTS = 8, TD__MAX_TABLES = 8, TD__TABLE_NAME = 128 };

/* A metric of one micro-batch of rows. The graph gives a node; the rest is how rows become one
 * number. */
typedef struct td__metric_node {
    const char *name; /* "accuracy" */
    td_node
        *node; /* f32 scalar: the mean over the micro-batch's rows (tokens, pixels count as rows) */
    bool higher_is_better;
    bool whole; /* no mean over rows: it needs all predictions of a part at once, and the node
                 * only stands in its place */
} td__metric_node;

/* A param with as many rows as a batch can name, of a table whose other rows are elsewhere: before
 * a batch is run, somebody brings its rows, and ids become row numbers (td__model_lookup). */
typedef struct td__model_table {
    char param[TD__TABLE_NAME]; /* its name */
    char ids[TD__FIELD_NAME];   /* the input that holds ids */
    int64_t vocab;              /* ids are below it */
    double std;                 /* of initial values */
    int64_t min_count, expire;  /* of ids: times used until it has a row; steps until it has not */
    bool ahead;                 /* rows of the next batch are pulled while one computes */
    size_t memory;              /* bytes of rows that a server holds; 0: any number */
} td__model_table;

typedef struct td__model_nodes {
    td_node *loss;   /* f32 scalar, the mean over rows */
    td_node *output; /* what `predict` writes: logits or values, (rows, ...) */
    td__metric_node metrics[TD__MAX_METRICS];
    int n_metrics;
    /* Inputs by the names of data fields; each is (rows, field shape...) of the field's dtype. */
    const char *inputs[TD__MAX_MODEL_INPUTS];
    int n_inputs;
    const char *target; /* the input that the output is compared with; NULL: a loss of its own */
    /* NULL, or the input whose targets `ignore` do not count: loss and metrics are then means over
     * the other targets, not over rows. */
    const char *ignoring;
    int64_t ignore;
    bool none_ignored; /* there: all targets count */
    /* (n_class_weights) The loss is the mean weighted by the classes of these targets, which are 1
     * after the last; NULL: they weigh alike. Borrowed. */
    const double *class_weights;
    int n_class_weights;
    td__model_table table[TD__MAX_TABLES];
    int n_tables;
} td__model_nodes;

/* Who brings the rows of tables; set while there is one. out: the batch with row numbers as ids,
 * until the next call. train: of ids that will be trained. */
typedef struct td__model_lookup {
    void *user;
    td_status (*rows)(void *user, const td__batch *batch, bool train, const td__batch **out);
    /* After an evaluation: the params of tables are zeros, as checkpoints have them. */
    td_status (*clear)(void *user);
} td__model_lookup;

/* Add the model for `rows` samples to g. Called with the same answers for every batch size, except
 * for shapes. Errors as text that names the layer. */
typedef struct td__model {
    td_status (*build)(void *user, td_graph *g, int64_t rows, td__model_nodes *out);
    void *user;
    td__model_lookup *lookup; /* of models with tables; borrowed */
} td__model;

#endif
