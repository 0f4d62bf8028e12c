/* one_node.h -- a single node with its inputs, run on any backend: for tests of kernels. No graph
 * is involved; descs come from the operator's own infer rule. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_ONE_NODE_H
#define TD_TESTS_SUPPORT_ONE_NODE_H

#include "base/cpu.h"
#include "graph/backend.h"
#include "support/element.h"

typedef struct one_node {
    td_node node;
    td_node leaf[TD_MAX_IN];
    td_node *leaf_at[TD_MAX_IN];
    td_desc in[TD_MAX_IN], out[TD_MAX_OUT];
    void *x[TD_MAX_IN];  /* guarded memory of the inputs */
    void *y[TD_MAX_OUT]; /* and of the outputs of the last run */
    const char *impl;    /* of the last run */
    td_run_ctx ctx;
    bool in_place; /* run with output 0 in input 0's memory; y[0] then holds the result */
} one_node;

/* attr must outlive the node. */
void one_node_init(one_node *t, td_opcode op, const void *attr, int n_in, const td_desc *in);
void one_node_fini(one_node *t);

/* Run on "ref", or on "cpu" held to an instruction set. */
void one_node_run_ref(one_node *t);
void one_node_run_cpu(one_node *t, td__isa isa);

/* Fill input k with numbers of [lo, hi), the same for the same seed; integers are cut down. */
void one_node_fill(one_node *t, int k, double lo, double hi, uint32_t seed);

/* Run on ref and on every instruction set here; all outputs must agree within
 * atol + rtol |want|, NaN with NaN and infinity with infinity. Prints `what` when they do not. */
void one_node_compare(one_node *t, double rtol, double atol, const char *what);

/* The instruction sets that kernels/ is compiled for and this processor has. */
int one_node_isas(td__isa out[3]);

#endif
