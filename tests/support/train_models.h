/* train_models.h -- small models that can be built for any number of rows, with batches for them:
 * for tests of the step engine and the trainer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_TRAIN_MODELS_H
#define TD_TESTS_SUPPORT_TRAIN_MODELS_H

#include "data/dataset.h"
#include "step/model.h"

typedef struct train_model {
    const char *name, *optimizer;
    td_dtype precision;
    td_status (*build)(void *user, td_graph *g, int64_t rows, td__model_nodes *out);
    td_shape x; /* of one sample */
    bool ids;   /* x holds numbers below `classes`, and so does y, of the same shape */
    int classes;
    bool per_row; /* the loss of a row depends on that row alone: no batch norm, no dropout */
} train_model;

extern const train_model TRAIN_MODELS[];
extern const int N_TRAIN_MODELS;

/* Points (2) -> classes (3), for the source "spirals": metrics "accuracy". */
td_status spirals_build(void *user, td_graph *g, int64_t rows, td__model_nodes *out);

/* A dataset of `count` samples in memory, fields x and y, from a seed. */
td__dataset *train_model_data(const train_model *m, int64_t count, unsigned seed);

#endif
