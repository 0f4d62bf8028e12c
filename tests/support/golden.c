/* golden.c -- see golden.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "tandem/tensor.h"

/* The generator of make.py. */
typedef struct lcg {
    uint64_t s;
} lcg;

static lcg lcg_start(const char *name)
{
    lcg g = {.s = 0xcbf29ce484222325u};

    for (; *name; name++)
        g.s = (g.s ^ (uint8_t)*name) * 0x100000001b3u;
    return g;
}

static double lcg_next(lcg *g) /* of [0, 1) */
{
    g->s = g->s * 6364136223846793005u + 1442695040888963407u;
    return (double)(g->s >> 40) / 16777216.0;
}

void golden_fill(const char *name, int n, void *out, size_t count)
{
    lcg g = lcg_start(name);

    for (size_t i = 0; i < count; i++) {
        double u = lcg_next(&g);
        if (n)
            ((int32_t *)out)[i] = (int32_t)(u * n);
        else
            ((float *)out)[i] = (float)(2 * u - 1);
    }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

/* An element of the first weights, from r of [-1, 1). */
static double first_weight(const td_param_info *p, double r)
{
    if (p->shape.ndim > 1) {
        double fan_in = (double)p->count / (double)p->shape.dim[0];
        return r * sqrt((strcmp(p->name, "fc.weight") ? 6 : 1) / fan_in);
    }
    if (ends_with(p->name, "bn2.weight"))
        return (1 + r / 4) / 4;
    bool near_one = ends_with(p->name, ".weight") || ends_with(p->name, "running_var");
    return near_one ? 1 + r / 4 : r / 8;
}

void golden_params(td_params *ps)
{
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info p = td_params_info(ps, i);
        lcg g = lcg_start(p.name);
        float *first = malloc((p.count + 1) * sizeof *first);
        CHECK(first, "no memory for '%s'", p.name);
        for (size_t k = 0; k < p.count; k++)
            first[k] = (float)first_weight(&p, 2 * lcg_next(&g) - 1);
        CHECK_OK(td_params_write(ps, p.offset, p.count, first));
        free(first);
    }
    td_params_touch(ps);
}

void golden_losses(const char *path, const char *name, double *out, int count)
{
    td_safetensors *s;
    td_tensor to;

    CHECK_OK(td_safetensors_open(path, &s));
    int i = td_safetensors_find(s, name);
    CHECK(i >= 0, "%s: no losses of %s", path, name);
    td_tensor from = td_safetensors_tensor(s, i);
    CHECK_OK(td_tensor_wrap(&to, TD_F64, TD_SHAPE(count), out));
    CHECK_OK(td_tensor_copy(&from, &to));
    td_safetensors_close(s);
}
