/* sample.h -- operators' samples as graphs and data: one node over fresh inputs, and numbers for
 * them. Everything here ends the test when it fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_SAMPLE_H
#define TD_TESTS_SUPPORT_SAMPLE_H

#include "ops/op.h"
#include "support/check.h"
#include "support/element.h"

/* A graph with inputs "in0", "in1", ... and one node of the operator over them. */
typedef struct sample_case {
    td_graph *g;
    td_opcode op;
    const td_op_sample *sample;
    int n_in;
    td_node *in[TD_SAMPLE_MAX_IN];
    td_desc desc[TD_SAMPLE_MAX_IN]; /* the inputs', where a layout was forced on them */
    td_node *node;
    char text[160]; /* "gelu sample 3 bf16 nhwc" for messages */
} sample_case;

/* Floats that the sample leaves open become `dtype`; beside bf16, weights stay f32. With nhwc, 4-D
 * inputs other than weights lie in that order. */
void sample_open(sample_case *c, td_opcode op, int index, td_dtype dtype, bool nhwc);
void sample_close(sample_case *c);

/* Is there anything to lay out in NHWC? */
bool sample_has_images(td_opcode op, int index);

/* Fill the memory of input i as the sample says; the same numbers for the same seed. */
void sample_fill(const sample_case *c, int i, uint32_t seed, void *data);

/* Uniform in [0, 1), advancing *state. */
double sample_uniform(uint64_t *state);

/* Leaves and `part` are made in other ways and have no samples. */
bool sample_is_exempt(td_opcode op);

/* Run `check` as one test for each operator that has samples, or for the one named by argv[1];
 * cmocka's state is the opcode. Gives main's result. */
int sample_run_operators(const char *group, CMUnitTestFunction check, CMFixtureFunction setup,
                         CMFixtureFunction teardown, int argc, char **argv);

#endif
