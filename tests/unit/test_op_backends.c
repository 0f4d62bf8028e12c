/* test_op_backends.c -- every operator of ops.def, every sample, in f32 and bf16, plain and NHWC:
 * the kernel of the cpu backend, or of the one that TD_TEST_BACKEND names, against the reference
 * one.
 *
 * Kernels are planned and called directly, between guard bytes, with scratch memory full of
 * rubbish, twice (the bits must be the same); again with weights packed as params; and again with
 * the output in the memory of each input that the operator allows. Before that, the table itself is
 * checked: an operator without samples, or with neither or both of `ref` and `scalar`, fails. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/backend.h"
#include "support/sample.h"

/* The buffers of one node and the results of the reference kernel. */
typedef struct bench {
    sample_case c;
    int n_out;
    size_t in_bytes[TD_SAMPLE_MAX_IN], out_bytes[TD_MAX_OUT];
    void *in[TD_SAMPLE_MAX_IN]; /* never written */
    void *want[TD_MAX_OUT];
    void *first[TD_MAX_OUT]; /* results of the first plain run */
    const char *impl;
} bench;

static td_backend *tested, *ref;
static const td_run_ctx CTX = {.seed = 11, .step = 4, .micro_batch = 2};

static void plan(td_backend *b, const bench *t, const bool *is_param, td_kernel *k)
{
    memset(k, 0, sizeof *k);
    td_status st = b->ops->plan(b, t->c.node, is_param, k);
    CHECK(!st, "%s: cannot be planned on %s: %s", t->c.text, b->ops->name, td_last_error());
    CHECK(k->run && k->impl && k->node == t->c.node, "%s: an incomplete kernel of %s", t->c.text,
          b->ops->name);
    CHECK(!strstr(k->impl, "on the host"), "%s: no kernel of %s takes it", t->c.text, b->ops->name);
}

/* ---- Memory of a device, between guards ------------------------------------------------------ */

enum { GUARD = 256, GUARD_BYTE = 0x5A };

typedef struct block {
    td_mem mem;
    size_t nbytes;
} block;

static void *begin_of(const block *b)
{
    return (char *)b->mem.at + GUARD;
}

/* A block with these bytes in it. */
static block send(td_device *d, const void *data, size_t nbytes)
{
    block b = {.nbytes = nbytes};
    td__mapping map;
    CHECK_OK(td__mem_alloc(d, TD_MEM_OWN, nbytes + 2 * GUARD, &b.mem));
    CHECK_OK(td__mem_map(d, b.mem.at, b.mem.nbytes, TD_MAP_WRITE, &map));
    memset(map.at, GUARD_BYTE, b.mem.nbytes);
    if (nbytes)
        memcpy((char *)map.at + GUARD, data, nbytes);
    CHECK_OK(td__mem_unmap(&map));
    return b;
}

/* Its bytes, if they are wanted; the guards are as they were. */
static void take_back(td_device *d, block *b, void *data, const char *what)
{
    td__mapping map;
    CHECK_OK(td__mem_map(d, b->mem.at, b->mem.nbytes, TD_MAP_READ, &map));
    const unsigned char *at = map.at;
    for (size_t i = 0; i < GUARD; i++)
        CHECK(at[i] == GUARD_BYTE && at[GUARD + b->nbytes + i] == GUARD_BYTE,
              "%s: a kernel wrote outside of its memory", what);
    if (data && b->nbytes)
        memcpy(data, at + GUARD, b->nbytes);
    td__mem_map_drop(&map);
    td__mem_free(&b->mem);
}

/* The call on a device whose memory the host does not read. */
static void call_there(td_backend *b, const bench *t, const td_kernel *k, const void *const *in,
                       void *const *out, const void *scratch)
{
    td_device *d = b->device;
    block ins[TD_SAMPLE_MAX_IN], outs[TD_MAX_OUT];
    block work = send(d, scratch, k->scratch), packed = send(d, scratch, 0);
    block key = send(d, &CTX, sizeof CTX);
    const void *in_at[TD_SAMPLE_MAX_IN];
    void *out_at[TD_MAX_OUT];
    td_stream *s;
    unsigned saved;
    packed.nbytes = 0;
    td__mem_free(&packed.mem);
    CHECK_OK(td__mem_alloc(d, TD_MEM_OWN, k->packed + 2 * GUARD, &packed.mem));
    CHECK_OK(td__stream_create(d, &s));
    for (int i = 0; i < t->n_out; i++) {
        outs[i] = send(d, out[i], t->out_bytes[i]);
        out_at[i] = begin_of(&outs[i]);
    }
    for (int i = 0; i < t->c.n_in; i++) {
        ins[i] = send(d, in[i], t->in_bytes[i]);
        in_at[i] = in[i] == out[0] ? out_at[0] : begin_of(&ins[i]);
    }
    td_kernel_call c = {.in = in_at,
                        .out = out_at,
                        .scratch = begin_of(&work),
                        .packed = begin_of(&packed),
                        .kernel = k,
                        .ctx = begin_of(&key),
                        .stream = s};
    b->ops->enter(b, &saved);
    if (k->prepare)
        k->prepare(&c);
    k->run(&c);
    b->ops->leave(b, saved);
    td_status st = td__stream_sync(s);
    CHECK(!st, "%s (%s): %s", t->c.text, k->impl, td_last_error());
    for (int i = 0; i < t->n_out; i++)
        take_back(d, &outs[i], out[i], t->c.text);
    for (int i = 0; i < t->c.n_in; i++)
        take_back(d, &ins[i], NULL, t->c.text);
    take_back(d, &work, NULL, t->c.text);
    take_back(d, &key, NULL, t->c.text);
    td__mem_free(&packed.mem);
    td__stream_destroy(s);
}

/* One call with scratch memory full of `fill`; packed memory is made anew. */
static void call(td_backend *b, const bench *t, const td_kernel *k, const void *const *in,
                 void *const *out, int fill)
{
    void *scratch = check_alloc_guarded(k->scratch), *packed = check_alloc_guarded(k->packed);
    memset(scratch, fill, k->scratch);
    td_kernel_call c = {
        .in = in, .out = out, .scratch = scratch, .packed = packed, .kernel = k, .ctx = &CTX};
    unsigned saved;
    if (td__device_host_reads(b->device)) {
        b->ops->enter(b, &saved);
        if (k->prepare)
            k->prepare(&c);
        k->run(&c);
        b->ops->leave(b, saved);
    } else {
        call_there(b, t, k, in, out, scratch);
    }
    for (int i = 0; i < t->c.n_in; i++)
        check_guards(in[i]);
    for (int i = 0; i < t->n_out; i++)
        check_guards(out[i]);
    check_free_guarded(scratch);
    check_free_guarded(packed);
}

/* What may differ: rounding. Elementwise operators are within one unit of the last place of what
 * they store; sums are compared on the scale of the largest result. */
static double allowed(const bench *t, td_dtype type, double want, double largest)
{
    const td_op_def *def = td__op(t->c.op);
    double factor = t->c.sample->tol > 0 ? t->c.sample->tol : 1;
    bool bf16 = type == TD_BF16;
    if (def->scalar || t->c.op == TD_OP_FUSED)
        return factor * ((bf16 ? 7.9e-3 : 1e-5) * fabs(want) + 1e-5 * fmin(1, largest));
    for (int i = 0; i < t->c.n_in; i++)
        bf16 = bf16 || t->c.in[i]->out[0].dtype == TD_BF16;
    return factor * (bf16 ? 8e-3 : 1e-5) * (fabs(want) + largest);
}

static bool same(const bench *t, td_dtype type, double got, double want, double largest)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got) || !td_dtype_is_float(type))
        return got == want;
    return fabs(got - want) <= allowed(t, type, want, largest);
}

static void compare(const bench *t, void *const *out, const char *how)
{
    for (int k = 0; k < t->n_out; k++) {
        const td_desc *d = &t->c.node->out[k];
        int64_t n = td__desc_count(d);
        double largest = 0;
        for (int64_t i = 0; i < n; i++) {
            double v = fabs(element_get(d->dtype, t->want[k], i));
            if (isfinite(v) && v > largest)
                largest = v;
        }
        for (int64_t i = 0; i < n; i++) {
            double got = element_get(d->dtype, out[k], i),
                   want = element_get(d->dtype, t->want[k], i);
            CHECK(same(t, d->dtype, got, want, largest),
                  "%s (%s, %s): element %lld of output %d is %.9g, must be %.9g", t->c.text,
                  t->impl, how, (long long)i, k, got, want);
        }
    }
}

static void alloc_outputs(const bench *t, void **out)
{
    for (int k = 0; k < t->n_out; k++)
        out[k] = check_alloc_guarded(t->out_bytes[k]);
}

static void free_outputs(const bench *t, void **out)
{
    for (int k = 0; k < t->n_out; k++)
        check_free_guarded(out[k]);
}

/* Twice, with other rubbish in scratch and outputs. */
static void check_run(bench *t, const bool *is_param, const char *how)
{
    td_kernel k;
    void *again[TD_MAX_OUT];
    plan(tested, t, is_param, &k);
    t->impl = k.impl;
    alloc_outputs(t, t->first);
    call(tested, t, &k, (const void *const *)t->in, t->first, 0xFF);
    compare(t, t->first, how);
    alloc_outputs(t, again);
    for (int i = 0; i < t->n_out; i++)
        memset(again[i], 0x3C, t->out_bytes[i]);
    call(tested, t, &k, (const void *const *)t->in, again, 0x00);
    for (int i = 0; i < t->n_out; i++)
        CHECK(memcmp(again[i], t->first[i], t->out_bytes[i]) == 0,
              "%s (%s, %s): output %d differs between two runs", t->c.text, t->impl, how, i);
    free_outputs(t, again);
    free_outputs(t, t->first);
    if (k.fini)
        k.fini(k.state);
}

/* Output 0 in the memory of input i. */
static void check_inplace(bench *t, const bool *is_param, int i)
{
    td_kernel k;
    const void *in[TD_SAMPLE_MAX_IN];
    void *out[TD_MAX_OUT];
    plan(tested, t, is_param, &k);
    alloc_outputs(t, out);
    memcpy(out[0], t->in[i], t->in_bytes[i]);
    for (int j = 0; j < t->c.n_in; j++)
        in[j] = j == i ? out[0] : t->in[j];
    call(tested, t, &k, in, out, 0xFF);
    compare(t, out, "in place");
    free_outputs(t, out);
    if (k.fini)
        k.fini(k.state);
}

static void open_bench(bench *t, td_opcode op, int index, td_dtype dtype, bool nhwc)
{
    memset(t, 0, sizeof *t);
    sample_open(&t->c, op, index, dtype, nhwc);
    t->n_out = t->c.node->n_out;
    for (int i = 0; i < t->c.n_in; i++) {
        t->in_bytes[i] = td__desc_bytes(&t->c.in[i]->out[0]);
        t->in[i] = check_alloc_guarded(t->in_bytes[i]);
        sample_fill(&t->c, i, 7, t->in[i]);
    }
    for (int k = 0; k < t->n_out; k++)
        t->out_bytes[k] = td__desc_bytes(&t->c.node->out[k]);
    alloc_outputs(t, t->want);
}

static void close_bench(bench *t)
{
    for (int i = 0; i < t->c.n_in; i++)
        check_free_guarded(t->in[i]);
    free_outputs(t, t->want);
    sample_close(&t->c);
}

static void check_sample(td_opcode op, int index, td_dtype dtype, bool nhwc)
{
    const td_op_def *def = td__op(op);
    bool none[TD_SAMPLE_MAX_IN] = {false}, weights[TD_SAMPLE_MAX_IN] = {false};
    bench t;
    td_kernel k;
    open_bench(&t, op, index, dtype, nhwc);
    plan(ref, &t, none, &k);
    call(ref, &t, &k, (const void *const *)t.in, t.want, 0xFF);

    check_run(&t, none, "weights are activations");
    for (int i = 0; i < t.c.n_in; i++)
        weights[i] = def->weights >> i & 1u;
    if (def->weights)
        check_run(&t, weights, "weights are params");
    for (int i = 0; i < t.c.n_in; i++)
        if (def->inplace >> i & 1u && t.in_bytes[i] == t.out_bytes[0])
            check_inplace(&t, none, i);
    close_bench(&t);
}

static void check_operator(void **state)
{
    td_opcode op = (td_opcode)(uintptr_t)*state;
    const td_op_def *def = td__op(op);
    CHECK(def->n_samples > 0, "operator %s has no samples", def->name);
    if (def->is_view)
        return;
    CHECK(!def->ref != !def->scalar, "operator %s has neither or both of ref and scalar",
          def->name);
    for (int i = 0; i < def->n_samples; i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            for (int nhwc = 0; nhwc <= (int)sample_has_images(op, i); nhwc++)
                check_sample(op, i, bf16 ? TD_BF16 : TD_F32, nhwc);
}

static int open_backends(void **state)
{
    (void)state;
    const char *name = getenv("TD_TEST_BACKEND");
    if (td__backend_create(name ? name : "cpu", &tested) || td__backend_create("ref", &ref)) {
        print_error("%s\n", td_last_error());
        return -1;
    }
    return 0;
}

static int close_backends(void **state)
{
    (void)state;
    td__backend_destroy(tested);
    td__backend_destroy(ref);
    return 0;
}

int main(int argc, char **argv)
{
    return sample_run_operators("op_backends", check_operator, open_backends, close_backends, argc,
                                argv);
}
