/* cublaslt_choose.c -- which algorithm of cuBLASLt a product takes: a function of its shape, types
 * and epilogue, of the kind of GPU and of the library's version, never of a timing in the run, so
 * that bits are the same in every run.
 *
 * cuBLASLt's heuristic names algorithms, best first as it believes; the best of eight is up to a
 * quarter faster than the first. products.def has, for products that were timed, which of them it
 * is; others take the first. TANDEM_CUDA_TUNE=FILE times those that a run plans, and appends rows
 * for the table to FILE. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cublaslt_impl.h"
#include "backend/cuda/tune.h"
#include "base/check.h"
#include "base/config.h"

enum {
    WORKSPACE = 32 << 20,
    ALIGNED = 64,
    CHOICES = 24,   /* that are timed; the table's are among the first 8 mostly */
    WITH_SUM = 4096 /* in the table, of an epilogue: a residual is added */
};

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
             .version = l->lt->held.version,
             .m = p->m,
             .n = p->n,
             .k = p->k,
             .how = {p->a_col == 1 ? 'N' : 'T', p->b_col == 1 ? 'N' : 'T'},
             .in = p->in,
             .out = p->out,
             .batch = l->batch,
             .epilogue = l->epilogue + (p->residual.space ? WITH_SUM : 0)};
    return r;
}

static int find_row(const row *r)
{
    for (int i = 0; i < TD_LEN(ROWS); i++) {
        const row *t = &ROWS[i];
        if (t->m == r->m && t->n == r->n && t->k == r->k && strcmp(t->how, r->how) == 0 &&
            t->in == r->in && t->out == r->out && t->batch == r->batch &&
            t->epilogue == r->epilogue && strcmp(t->gpu, r->gpu) == 0 &&
            td__tune_is_version(t->version, r->version))
            return t->choice;
    }
    return -1;
}

/* ---- Timing ---------------------------------------------------------------------------------- */

typedef struct timed {
    const td__lt_product *l;
    const cublasLtMatmulHeuristicResult_t *choice;
    const void *a, *b, *added;
    void *c, *workspace;
} timed;

static bool call(void *user, CUstream stream)
{
    const timed *t = user;
    const td__lt_product *l = t->l;
    const float one = 1, other = l->p.residual.space ? 1 : 0;
    return !l->lt->cublasLtMatmul(l->lt->handle, l->desc, &one, t->b, l->a, t->a, l->b, &other,
                                  t->added, l->c, t->c, l->c, &t->choice->algo, t->workspace,
                                  t->choice->workspaceSize, (cudaStream_t)stream);
}

static void write_row(const char *file, const row *r, int choice, int64_t best, int64_t first)
{
    FILE *to = fopen(file, "a");
    if (!to)
        return;
    fprintf(to,
            "TD_PRODUCT(\"%s\", \"%.*s\", %lld, %lld, %lld, \"%s\", %s, %s, %d, %d, %d) /* %.3f "
            "ms; the first %.3f */\n",
            r->gpu, td__tune_version_length(r->version), r->version, (long long)r->m,
            (long long)r->n, (long long)r->k, r->how, r->in == TD_BF16 ? "BF16" : "F32",
            r->out == TD_BF16 ? "BF16" : "F32", r->batch, r->epilogue, choice, (double)best * 1e-6,
            (double)first * 1e-6);
    fclose(to);
}

static int tune(const char *file, const row *r, td__lt_product *l,
                const cublasLtMatmulHeuristicResult_t *found, int n)
{
    const td__cuda_product *p = &l->p;
    size_t in = td_dtype_size(p->in), out = td_dtype_size(p->out), many = (size_t)l->batch;
    size_t c = (size_t)(p->m * p->n) * out * many;
    int64_t best = INT64_MAX, first = 0;
    int choice = 0;
    td__tune t;
    td__tune_begin(&t);
    timed product = {.l = l,
                     .a = td__tune_take(&t, (size_t)(p->m * p->k) * in * many, p->in),
                     .b = td__tune_take(&t, (size_t)(p->k * p->n) * in * many, p->in),
                     .c = td__tune_take(&t, c, TD_DTYPE_COUNT),
                     .workspace = td__tune_take(&t, WORKSPACE, TD_DTYPE_COUNT)};
    const void *other = td__tune_take(&t, c, p->out); /* pre, slope_at or residual */
    const void *bias = td__tune_take(&t, (size_t)p->n * out, p->out);
    product.added = p->residual.space ? other : product.c;
    if (p->bias.space)
        l->lt->cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof bias);
    if (p->pre.space || p->slope_at.space)
        l->lt->cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                              &other, sizeof other);
    for (int i = 0; i < n && t.good; i++) {
        product.choice = &found[i];
        int64_t ns = td__tune_time(&t, call, &product);
        first = i ? first : ns;
        if (ns < best - best / 100) { /* a later one must be better by more than noise */
            best = ns;
            choice = i;
        }
    }
    if (t.good)
        write_row(file, r, choice, best, first);
    td__tune_end(&t);
    return choice;
}

static uint64_t mixed(uint64_t key, int64_t v)
{
    return (key ^ (uint64_t)v) * 0x100000001b3u + (key >> 29);
}

/* The layers of a model have the same products. */
static int tune_once(const char *file, const row *r, td__lt_product *l,
                     const cublasLtMatmulHeuristicResult_t *found, int n)
{
    td__cublaslt *lt = l->lt;
    const int64_t parts[] = {r->m,       r->n,        r->k,     r->how[0],  r->how[1],
                             (int)r->in, (int)r->out, r->batch, r->epilogue};
    uint64_t key = 0xcbf29ce484222325u;
    for (int i = 0; i < TD_LEN(parts); i++)
        key = mixed(key, parts[i]);
    for (int i = 0; i < lt->n_timed; i++)
        if (lt->timed[i].key == key)
            return lt->timed[i].choice;
    int choice = tune(file, r, l, found, n);
    if (lt->n_timed < TD_LEN(lt->timed)) {
        lt->timed[lt->n_timed].key = key;
        lt->timed[lt->n_timed++].choice = choice;
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
    if (file && *file)
        choice = tune_once(file, &r, l, found, n);
    if (choice < 0 || choice >= n)
        choice = 0;
    l->algo = found[choice].algo;
    l->workspace_bytes = found[choice].workspaceSize;
    return true;
}
