/* onednn.c -- see onednn.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/onednn.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "backend/cpu/engine_onednn.h"
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/fail.h"

enum {
    MAX_SETS = 16,       /* more threads in one primitive at once wait for one another */
    CODE_ROOM = 16 << 20 /* bytes: more than the code of a primitive takes, 256 kB a kernel */
};

/* What one execution needs besides the primitive. The first set is made at plan time, the others
 * when threads first meet in a primitive. */
typedef struct td__dnnl_set {
    atomic_flag busy; /* held while its owner executes */
    bool made;        /* written and read under busy */
    dnnl_stream_t stream;
    dnnl_exec_arg_t arg[TD__DNNL_MAX_ARGS + 1];
} dnnl_set;

static pthread_mutex_t planning = PTHREAD_MUTEX_INITIALIZER; /* the order in oneDNN's cache */
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine; /* constant once made */

static void make_engine(void)
{
    static const dnnl_cpu_isa_t CAP[TD_ISA_COUNT] = {
        [TD_ISA_SCALAR] = dnnl_cpu_isa_sse41,
        [TD_ISA_AVX2] = dnnl_cpu_isa_avx2,
        [TD_ISA_AVX512] = dnnl_cpu_isa_avx512_core,
        [TD_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
        /* Never its own tile kernels: they would release our tile configuration in mid-run, and
         * crash where the palette leaves are hidden. */
        [TD_ISA_AMX] = dnnl_cpu_isa_avx512_core_bf16,
    };

    /* Refused if somebody used oneDNN before us: harmless, except where its tile kernels crash. */
    if (dnnl_set_max_cpu_isa(CAP[td__cpu_isa()]) != dnnl_success && td__cpu_amx_leaves_hidden())
        return;
    /* Otherwise it looks for a profiler's library in fifty places before its first kernel. */
    (void)dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

/* oneDNN writes code to where it asked for memory, and does not look whether it got any. */
static td_status room_for_code(void)
{
    if (!td__room_for(CODE_ROOM))
        return TD_FAIL(TD_ENOMEM, "no memory for %d bytes of machine code", (int)CODE_ROOM);
    return TD_OK;
}

td_status td__dnnl_engine(dnnl_engine_t *out)
{
    TD_TRY(room_for_code());
    pthread_once(&engine_once, make_engine);
    *out = engine;
    if (!engine)
        return TD_FAIL(TD_ENOTSUP, "oneDNN cannot be used on this processor");
    return TD_OK;
}

td_status td__dnnl_status(dnnl_status_t st, const char *what)
{
    switch (st) {
    case dnnl_success: return TD_OK;
    case dnnl_out_of_memory: return TD_FAIL(TD_ENOMEM, "oneDNN is out of memory in %s", what);
    case dnnl_unimplemented: return TD_FAIL(TD_ENOTSUP, "oneDNN does not implement %s here", what);
    default: return TD_FAIL(TD_EINVAL, "oneDNN status %d from %s", (int)st, what);
    }
}

static dnnl_data_type_t dtype_of(td_dtype t)
{
    switch (t) {
    case TD_F32: return dnnl_f32;
    case TD_BF16: return dnnl_bf16;
    case TD_I32: return dnnl_s32;
    case TD_U8: return dnnl_u8;
    default: return dnnl_data_type_undef;
    }
}

td_status td__dnnl_md(dnnl_memory_desc_t *out, int ndims, const int64_t *dims, td_dtype dtype,
                      const int64_t *strides)
{
    dnnl_dims_t d = {0}, s = {0};

    for (int i = ndims - 1; i >= 0; i--) {
        d[i] = dims[i];
        s[i] = strides ? strides[i] : i == ndims - 1 ? 1 : s[i + 1] * d[i + 1];
    }
    TD__DNNL_TRY(dnnl_memory_desc_init_by_strides(out, ndims, d, dtype_of(dtype), s));
    return TD_OK;
}

td_status td__dnnl_md_any(dnnl_memory_desc_t *out, int ndims, const int64_t *dims, td_dtype dtype)
{
    dnnl_dims_t d = {0};

    for (int i = 0; i < ndims; i++)
        d[i] = dims[i];
    TD__DNNL_TRY(dnnl_memory_desc_init_by_tag(out, ndims, d, dtype_of(dtype), dnnl_format_tag_any));
    return TD_OK;
}

td_status td__dnnl_md_desc(dnnl_memory_desc_t *out, const td_desc *d)
{
    const int64_t *dim = d->shape.dim;
    const int64_t nhwc[] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};

    return td__dnnl_md(out, d->shape.ndim, dim, d->dtype,
                       d->layout == TD_LAYOUT_NHWC ? nhwc : NULL);
}

td_status td__dnnl_attr(dnnl_primitive_attr_t *out)
{
    td_status st;

    TD__DNNL_TRY(dnnl_primitive_attr_create(out));
    st = td__dnnl_status(dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user),
                         "dnnl_primitive_attr_set_scratchpad_mode");
    if (st) {
        dnnl_primitive_attr_destroy(*out);
        *out = NULL;
    }
    return st;
}

/* The memory objects of a set: no memory of their own, pointers come with each run. */
static td_status make_set(dnnl_set *set, const td__dnnl *p)
{
    const_dnnl_primitive_desc_t pd;

    TD__DNNL_TRY(dnnl_primitive_get_primitive_desc(p->primitive, &pd));
    TD__DNNL_TRY(dnnl_stream_create(&set->stream, engine, dnnl_stream_default_flags));
    for (int i = 0; i <= p->n_args; i++) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, set->arg[i].arg);
        TD__DNNL_TRY(dnnl_memory_create(&set->arg[i].memory, md, engine, DNNL_MEMORY_NONE));
    }
    set->made = true;
    return TD_OK;
}

void td__dnnl_lock(void)
{
    pthread_mutex_lock(&planning);
}

void td__dnnl_unlock(void)
{
    pthread_mutex_unlock(&planning);
}

static void release(td__dnnl *p)
{
    for (int s = 0; p->sets && s < MAX_SETS; s++) {
        for (int i = 0; i <= p->n_args; i++)
            if (p->sets[s].arg[i].memory)
                dnnl_memory_destroy(p->sets[s].arg[i].memory);
        if (p->sets[s].stream)
            dnnl_stream_destroy(p->sets[s].stream);
    }
    td__free(p->sets);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    *p = (td__dnnl){0};
}

td_status td__dnnl_init(td__dnnl *out, dnnl_primitive_desc_t pd, const int *args, int n_args)
{
    td_status st;

    *out = (td__dnnl){.n_args = n_args};
    TD_ASSERT(n_args <= TD__DNNL_MAX_ARGS, "%d arguments", n_args);
    out->scratch =
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    TD_TRY_OR(st, done, room_for_code());
    TD_TRY_OR(st, done,
              td__dnnl_status(dnnl_primitive_create(&out->primitive, pd), "dnnl_primitive_create"));
    const_dnnl_primitive_desc_t own;
    if (dnnl_primitive_get_primitive_desc(out->primitive, &own) != dnnl_success ||
        dnnl_primitive_desc_query(own, dnnl_query_impl_info_str, 0, &out->info) != dnnl_success)
        out->info = "onednn";
    out->sets = td__calloc(MAX_SETS, sizeof *out->sets);
    if (!out->sets) {
        st = TD_FAIL(TD_ENOMEM, "no memory for the arguments of a primitive");
        goto done;
    }
    for (int s = 0; s < MAX_SETS; s++) {
        for (int i = 0; i < n_args; i++)
            out->sets[s].arg[i].arg = args[i];
        out->sets[s].arg[n_args].arg = DNNL_ARG_SCRATCHPAD;
    }
    TD_TRY_OR(st, done, make_set(&out->sets[0], out));
done:
    dnnl_primitive_desc_destroy(pd);
    if (st)
        release(out);
    return st;
}

void td__dnnl_fini(td__dnnl *p)
{
    td__dnnl_lock();
    release(p);
    td__dnnl_unlock();
}

static dnnl_set *take_set(const td__dnnl *p)
{
    for (;;) {
        for (int s = 0; s < MAX_SETS; s++)
            if (!atomic_flag_test_and_set_explicit(&p->sets[s].busy, memory_order_acquire))
                return &p->sets[s];
        sched_yield();
    }
}

td_status td__dnnl_run(const td__dnnl *p, void *const *ptr, void *scratch)
{
    dnnl_set *set = take_set(p);
    dnnl_status_t st = dnnl_success;
    td_status made = set->made ? TD_OK : make_set(set, p);

    for (int i = 0; i <= p->n_args && !made && st == dnnl_success; i++)
        st = dnnl_memory_set_data_handle(set->arg[i].memory, i < p->n_args ? ptr[i] : scratch);
    if (!made && st == dnnl_success)
        st = dnnl_primitive_execute(p->primitive, set->stream, p->n_args + 1, set->arg);
    atomic_flag_clear_explicit(&set->busy, memory_order_release);
    return made ? made : td__dnnl_status(st, p->info);
}

/* ---- The backend's side ---------------------------------------------------------------------- */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *td__onednn_version(void)
{
    return TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

unsigned td__onednn_alone(void)
{
    unsigned team = (unsigned)omp_get_max_threads();
    omp_set_num_threads(1);
    return team;
}

void td__onednn_restore(unsigned team)
{
    omp_set_num_threads((int)team);
}
