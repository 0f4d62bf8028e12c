/* far.c -- the far backend: the kernels of the cpu backend, run by the streams of device far, which
 * see that device's memory at addresses of their own. For tests: a host that touches such memory
 * without asking dies (device/far/far.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"
#include "base/alloc.h"
#include "base/fail.h"

typedef struct far {
    td_backend base;
    td_backend *cpu;
} far;

/* The state of a kernel. */
typedef struct moved {
    far *owner;
    td_kernel kernel; /* the cpu's */
} moved;

/* The call as the stream's thread must see it. */
static void call_local(const td_kernel_call *c, void (*fn)(const td_kernel_call *c))
{
    const moved *m = c->kernel->state;
    const td_node *n = m->kernel.node;
    td_backend *cpu = m->owner->cpu;
    td_device *d = m->owner->base.device;
    const void *in[TD_MAX_IN];
    void *out[TD_MAX_OUT];
    unsigned saved;
    td_kernel_call local = {.in = in,
                            .out = out,
                            .scratch = td__device_local(d, c->scratch),
                            .packed = td__device_local(d, c->packed),
                            .kernel = &m->kernel,
                            .ctx = td__device_local(d, c->ctx),
                            .stream = c->stream};
    for (int i = 0; i < n->n_in; i++)
        in[i] = td__device_local(d, c->in[i]);
    for (int i = 0; i < n->n_out; i++)
        out[i] = td__device_local(d, c->out[i]);
    cpu->ops->enter(cpu, &saved);
    fn(&local);
    cpu->ops->leave(cpu, saved);
}

static void run(const td_kernel_call *c)
{
    call_local(c, ((const moved *)c->kernel->state)->kernel.run);
}

static void prepare(const td_kernel_call *c)
{
    call_local(c, ((const moved *)c->kernel->state)->kernel.prepare);
}

static void fini(void *state)
{
    moved *m = state;
    if (m->kernel.fini)
        m->kernel.fini(m->kernel.state);
    td__free(m);
}

static td_status far_plan(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    moved *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of '%s'", n->name);
    m->owner = (far *)b;
    td_status st = m->owner->cpu->ops->plan(m->owner->cpu, n, is_param, &m->kernel);
    if (st) {
        td__free(m);
        return st;
    }
    *k = (td_kernel){.node = n,
                     .impl = m->kernel.impl,
                     .run = run,
                     .prepare = m->kernel.prepare ? prepare : NULL,
                     .packs = m->kernel.packs,
                     .scratch = m->kernel.scratch,
                     .packed = m->kernel.packed,
                     .state = m,
                     .fini = fini};
    return TD_OK;
}

static void far_destroy(td_backend *b)
{
    td__backend_destroy(((far *)b)->cpu);
    td__host_destroy(b);
}

static const td_backend_ops OPS = {
    .name = "far",
    .destroy = far_destroy,
    .device = "far",
    .plan = far_plan,
    .enter = td__host_enter,
    .leave = td__host_leave,
    .wants_nhwc = true, /* as the cpu, whose bits it must have */
};

td_status td__far_create(td_backend **out)
{
    TD_TRY(td__host_create(&OPS, sizeof(far), out));
    td_status st = td__cpu_create(&((far *)*out)->cpu);
    if (st) {
        td__host_destroy(*out);
        *out = NULL;
    }
    return st;
}
