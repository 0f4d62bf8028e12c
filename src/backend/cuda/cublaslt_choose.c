/* cublaslt_choose.c -- which algorithm of cuBLASLt a product takes: a function of its shape, types
 * and epilogue, of the kind of GPU and of the library's version, never of a timing in the run, so
 * that bits are the same in every run.
 *
 * cuBLASLt's heuristic names algorithms, best first as it believes; the best of eight is up to a
 * quarter faster than the first. products.def has, for products that were timed, which of them it
 * is; others take the first. TANDEM_CUDA_TUNE=FILE times those that a run plans and that are not in
 * the table, and appends rows for the table to FILE. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cublaslt_impl.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"

enum { WORKSPACE = 32 << 20, ALIGNED = 64, CHOICES = 8 };

typedef struct row {
    const char *gpu, *version; /* "NVIDIA H200", "13.1": of cuBLASLt, without its last number */
    int64_t m, n, k;
    char how[3]; /* of a and b: N as they are, T transposed */
    td_dtype in, out;
    int batch, epilogue, choice;
} row;

static const row ROWS[] = {
#define TD_PRODUCT(gpu, version, m, n, k, how, in, out, batch, epilogue, choice) \
    {gpu, version, m, n, k, how, TD_##in, TD_##out, batch, epilogue, choice},
#include "backend/cuda/products.def"
#undef TD_PRODUCT
};

static row row_of(td_device *d, const td__lt_product *l)
{
    const td__cuda_product *p = &l->p;
    row r = {.gpu = td__cuda_kind_of(d)->name,
             .version = l->lt->version,
             .m = p->m,
             .n = p->n,
             .k = p->k,
             .how = {p->a_col == 1 ? 'N' : 'T', p->b_col == 1 ? 'N' : 'T'},
             .in = p->in,
             .out = p->out,
             .batch = l->batch,
             .epilogue = l->epilogue};
    return r;
}

static int find_row(const row *r)
{
    for (int i = 0; i < TD_LEN(ROWS); i++) {
        const row *t = &ROWS[i];
        size_t of_version = strlen(t->version);
        if (t->m == r->m && t->n == r->n && t->k == r->k && strcmp(t->how, r->how) == 0 &&
            t->in == r->in && t->out == r->out && t->batch == r->batch &&
            t->epilogue == r->epilogue && strcmp(t->gpu, r->gpu) == 0 &&
            strncmp(t->version, r->version, of_version) == 0 && r->version[of_version] == '.')
            return t->choice;
    }
    return -1;
}

/* ---- Timing ---------------------------------------------------------------------------------- */

typedef struct memory {
    CUdeviceptr a, b, c, pre, bias, workspace;
    CUstream stream;
} memory;

static CUdeviceptr take(size_t nbytes, bool *good)
{
    CUdeviceptr at = 0;
    *good = *good && td__cu.cuMemAlloc_v2(&at, nbytes) == CUDA_SUCCESS;
    return at;
}

/* Numbers between -1 and 1: a GPU is faster with zeros. */
static void fill(CUdeviceptr to, size_t nbytes, td_dtype t, CUstream stream)
{
    static uint32_t some[1 << 18];
    uint32_t s = 1;
    for (int i = 0; i < TD_LEN(some); i++) {
        s = s * 1664525u + 1013904223u;
        uint32_t sign = s & 0x80008000u, low = 0x3f80u - (s >> 8 & 0x1ffu);
        some[i] = t == TD_BF16 ? sign | low << 16 | (0x3f80u - (s >> 20 & 0x1ffu))
                               : (sign & 0x80000000u) | low << 16 | (s >> 4 & 0xffffu);
    }
    for (size_t at = 0; at < nbytes; at += sizeof some) {
        size_t n = nbytes - at < sizeof some ? nbytes - at : sizeof some;
        td__cu.cuMemcpyAsync(to + at, (CUdeviceptr)(uintptr_t)some, n, stream);
    }
    td__cu.cuStreamSynchronize(stream);
}

static bool launch(const td__lt_product *l, const memory *m,
                   const cublasLtMatmulHeuristicResult_t *f)
{
    const float one = 1, zero = 0;
    return !l->lt->cublasLtMatmul(l->lt->handle, l->desc, &one, (void *)m->b, l->a, (void *)m->a,
                                  l->b, &zero, (void *)m->c, l->c, (void *)m->c, l->c, &f->algo,
                                  (void *)m->workspace, f->workspaceSize, (cudaStream_t)m->stream);
}

/* ns of one call; the best of three rounds */
static int64_t time_choice(const td__lt_product *l, const memory *m,
                           const cublasLtMatmulHeuristicResult_t *f)
{
    enum { CALLS = 10, ROUNDS = 3 };
    int64_t best = INT64_MAX;
    for (int r = 0; r <= ROUNDS; r++) { /* the first is not counted */
        uint64_t start = td__clock_ns();
        for (int i = 0; i < CALLS; i++)
            if (!launch(l, m, f))
                return INT64_MAX;
        if (td__cu.cuStreamSynchronize(m->stream))
            return INT64_MAX;
        int64_t each = (int64_t)(td__clock_ns() - start) / CALLS;
        best = r && each < best ? each : best;
    }
    return best;
}

static int tune(const char *file, const row *r, td__lt_product *l,
                const cublasLtMatmulHeuristicResult_t *found, int n)
{
    const td__cuda_product *p = &l->p;
    size_t in = td_dtype_size(p->in), out = td_dtype_size(p->out), many = (size_t)l->batch;
    size_t a = (size_t)(p->m * p->k) * in * many, b = (size_t)(p->k * p->n) * in * many;
    size_t c = (size_t)(p->m * p->n) * out * many;
    int64_t best = INT64_MAX, first = 0;
    int choice = 0;
    bool good = true;
    memory m = {.a = take(a, &good), .b = take(b, &good), .c = take(c, &good)};
    m.pre = take(c, &good);
    m.bias = take((size_t)p->n * out, &good);
    m.workspace = take(WORKSPACE, &good);
    good = good && !td__cu.cuStreamCreate(&m.stream, CU_STREAM_NON_BLOCKING);
    if (good) {
        fill(m.a, a, p->in, m.stream);
        fill(m.b, b, p->in, m.stream);
        if (p->bias.space)
            l->lt->cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &m.bias, sizeof m.bias);
        if (p->pre.space)
            l->lt->cublasLtMatmulDescSetAttribute(
                l->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &m.pre, sizeof m.pre);
    }
    for (int i = 0; i < n && good; i++) {
        int64_t ns = time_choice(l, &m, &found[i]);
        first = i ? first : ns;
        if (ns < best - best / 100) { /* a later one must be better by more than noise */
            best = ns;
            choice = i;
        }
    }
    CUdeviceptr all[] = {m.a, m.b, m.c, m.pre, m.bias, m.workspace};
    for (int i = 0; i < TD_LEN(all); i++)
        if (all[i])
            td__cu.cuMemFree_v2(all[i]);
    if (m.stream)
        td__cu.cuStreamDestroy_v2(m.stream);
    FILE *to = good ? fopen(file, "a") : NULL;
    if (to) {
        fprintf(
            to,
            "TD_PRODUCT(\"%s\", \"%.*s\", %lld, %lld, %lld, \"%s\", %s, %s, %d, %d, %d) /* %.3f "
            "ms; the first %.3f */\n",
            r->gpu, (int)(strrchr(r->version, '.') - r->version), r->version, (long long)r->m,
            (long long)r->n, (long long)r->k, r->how, r->in == TD_BF16 ? "BF16" : "F32",
            r->out == TD_BF16 ? "BF16" : "F32", r->batch, r->epilogue, choice, (double)best * 1e-6,
            (double)first * 1e-6);
        fclose(to);
    }
    return choice;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static int ask(td__lt_product *l, cublasLtMatmulHeuristicResult_t found[CHOICES])
{
    td__cublaslt *lt = l->lt;
    cublasLtMatmulPreference_t want = NULL;
    size_t room = WORKSPACE;
    uint32_t align = l->p.align ? (uint32_t)l->p.align : ALIGNED;
    int n = 0;
    static const cublasLtMatmulPreferenceAttributes_t ALIGNMENTS[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    bool good = !lt->cublasLtMatmulPreferenceCreate(&want) &&
                !lt->cublasLtMatmulPreferenceSetAttribute(
                    want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    for (int i = 0; good && i < TD_LEN(ALIGNMENTS); i++)
        good = !lt->cublasLtMatmulPreferenceSetAttribute(want, ALIGNMENTS[i], &align, sizeof align);
    good = good && !lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, l->desc, l->a, l->b, l->c, l->c,
                                                       want, CHOICES, found, &n);
    if (want)
        lt->cublasLtMatmulPreferenceDestroy(want);
    int usable = 0;
    while (good && usable < n && !found[usable].state)
        usable++;
    return usable;
}

bool td__lt_choose(td_device *d, td__lt_product *l)
{
    cublasLtMatmulHeuristicResult_t found[CHOICES];
    const char *file = td__env_get(TD_ENV_CUDA_TUNE);
    int n = ask(l, found);
    if (!n)
        return false;
    row r = row_of(d, l);
    int choice = find_row(&r);
    if (choice < 0 && file && *file)
        choice = tune(file, &r, l, found, n);
    if (choice < 0 || choice >= n)
        choice = 0;
    l->algo = found[choice].algo;
    l->workspace_bytes = found[choice].workspaceSize;
    return true;
}
