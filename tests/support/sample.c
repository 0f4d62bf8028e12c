/* sample.c -- see sample.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/sample.h"

#include <stdio.h>
#include <string.h>

#include "graph/graph_impl.h"
#include "ops/attr.h"

bool sample_is_exempt(td_opcode op)
{
    return op == TD_OP_INPUT || op == TD_OP_PARAM || op == TD_OP_STATE || op == TD_OP_CONSTANT ||
           op == TD_OP_PART;
}

static bool is_image(const td_op_def *def, const td_op_sample *s, int i)
{
    return s->in[i].shape.ndim == 4 && !(def->weights >> i & 1u) &&
           def->layout != TD_LAYOUT_RULE_PLAIN;
}

bool sample_has_images(td_opcode op, int index)
{
    const td_op_def *def = td__op(op);
    const td_op_sample *s = &def->samples[index];
    for (int i = 0; i < s->n_in; i++)
        if (is_image(def, s, i))
            return true;
    return false;
}

/* Attributes that hold the type of the result. */
typedef union attributes {
    td_attr_matmul matmul;
    td_attr_linear linear;
    td_attr_conv2d conv2d;
    td_attr_embedding embedding;
} attributes;

/* The attributes as a bf16 program has them: activations come out in bf16 too, gradients of weights
 * do not. `to` is where a changed copy goes. */
static const void *bf16_attributes(td_opcode op, const void *attr, attributes *to)
{
    switch (op) {
    case TD_OP_MATMUL:
        to->matmul = *(const td_attr_matmul *)attr;
        to->matmul.out_dtype = TD_BF16;
        return to;
    case TD_OP_LINEAR:
    case TD_OP_LINEAR_BACK_DATA:
        to->linear = *(const td_attr_linear *)attr;
        to->linear.out_dtype = TD_BF16;
        return to;
    case TD_OP_CONV2D:
    case TD_OP_CONV2D_BACK_DATA:
        to->conv2d = *(const td_attr_conv2d *)attr;
        to->conv2d.out_dtype = TD_BF16;
        return to;
    case TD_OP_EMBEDDING:
    case TD_OP_EMBEDDING_BAG:
        to->embedding = *(const td_attr_embedding *)attr;
        to->embedding.out_dtype = TD_BF16;
        return to;
    default: return attr;
    }
}

void sample_open(sample_case *c, td_opcode op, int index, td_dtype dtype, bool nhwc)
{
    const td_op_def *def = td__op(op);
    const td_op_sample *s = &def->samples[index];
    memset(c, 0, sizeof *c);
    c->op = op;
    c->sample = s;
    c->n_in = s->n_in;
    snprintf(c->text, sizeof c->text, "%s sample %d %s%s", def->name, index, td_dtype_name(dtype),
             nhwc ? " nhwc" : "");
    CHECK_OK(td_graph_create(&c->g));
    for (int i = 0; i < s->n_in; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        td_desc d = s->in[i];
        bool stays = dtype == TD_BF16 && ((def->weights | s->weights) >> i & 1u);
        if (d.dtype == TD_F32 && !stays)
            d.dtype = dtype;
        if (nhwc && is_image(def, s, i))
            d.layout = TD_LAYOUT_NHWC;
        c->in[i] = td_input(c->g, name, d.dtype, d.shape);
        CHECK(c->in[i], "%s: %s", c->text, td_graph_error(c->g));
        c->desc[i] = d;
        c->in[i]->out = &c->desc[i];
    }
    attributes attr;
    const void *use = dtype == TD_BF16 ? bf16_attributes(op, s->attr, &attr) : s->attr;
    c->node = td__node(c->g, op, use, c->in, s->n_in);
    CHECK(c->node, "%s: %s", c->text, td_graph_error(c->g));
}

void sample_close(sample_case *c)
{
    td_graph_destroy(c->g);
    c->g = NULL;
}

double sample_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

void sample_fill(const sample_case *c, int i, uint32_t seed, void *data)
{
    const td_op_sample *s = c->sample;
    const td_desc *d = &c->in[i]->out[0];
    uint64_t state = ((uint64_t)seed << 32) + (uint64_t)c->op * 64 + (uint64_t)i + 1;
    double lo = s->lo, hi = s->hi;
    int64_t n = td__desc_count(d), ilo = s->ilo, ihi = s->ihi;
    if (s->positive >> i & 1u) {
        lo = 0.5;
        hi = 1.5;
    } else if (lo == 0 && hi == 0) {
        lo = -1;
        hi = 1;
    }
    if (d->dtype == TD_BOOL) {
        ilo = 0;
        ihi = 2;
    }
    if (ihi <= ilo)
        ihi = ilo + 1;
    sample_uniform(&state);
    for (int64_t k = 0; k < n; k++) {
        double u = sample_uniform(&state);
        bool is_float = td_dtype_is_float(d->dtype);
        element_set(d->dtype, data, k,
                    is_float ? lo + (hi - lo) * u
                             : (double)(ilo + (int64_t)(u * (double)(ihi - ilo))));
    }
}

int sample_run_operators(const char *group, CMUnitTestFunction check, CMFixtureFunction setup,
                         CMFixtureFunction teardown, int argc, char **argv)
{
    static struct CMUnitTest tests[TD_OP_COUNT];
    size_t n = 0;
    for (int op = 0; op < TD_OP_COUNT; op++) {
        const char *name = td__op((td_opcode)op)->name;
        if (sample_is_exempt((td_opcode)op) || (argc > 1 && strcmp(argv[1], name) != 0))
            continue;
        tests[n++] = (struct CMUnitTest){
            .name = name, .test_func = check, .initial_state = (void *)(uintptr_t)op};
    }
    return _cmocka_run_group_tests(group, tests, n, setup, teardown);
}
