/* fuzz_job.c -- job files, from the bytes to the model. What is taken is written out, must load
 * again, and must then be written the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fuzz/fuzz_file.h"
#include "job/job.h"

typedef struct text {
    char *data;
    size_t nbytes;
} text;

static text written(const td__job *j)
{
    text t = {.data = NULL};
    FILE *f = open_memstream(&t.data, &t.nbytes);

    if (!f || td__job_write(j, f) || fclose(f))
        abort();
    return t;
}

/* The model for data of a few kinds; most do not fit, which is no failure. */
static void build(td__job *j)
{
    static const td__field DATA[][2] = {
        {{.name = "x", .dtype = TD_F32, .shape = {3, {1, 12, 12}}},
         {.name = "y", .dtype = TD_I32, .classes = 10}},
        {{.name = "x", .dtype = TD_I32, .shape = {1, {6}}, .classes = 20},
         {.name = "y", .dtype = TD_I32, .shape = {1, {6}}, .classes = 20}},
        {{.name = "x", .dtype = TD_U8, .shape = {1, {5}}}, {.name = "y", .dtype = TD_F32}},
    };
    const td__layer_row *rows;
    td__model m;

    for (int i = 0; i < TD_LEN(DATA); i++)
        if (!td__job_model(j, DATA[i], 2, &m) && td__job_layers(j, &rows) < 0)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    td__job *a, *b;
    char digest[2][65];

    if (td__job_parse((const char *)data, nbytes, "job.yaml", NULL, 0, &a))
        return 0;
    text one = written(a);
    if (td__job_parse(one.data, one.nbytes, "job.yaml", NULL, 0, &b))
        abort();
    text two = written(b);
    if (one.nbytes != two.nbytes || memcmp(one.data, two.data, one.nbytes) != 0)
        abort();
    if (td__job_digest(a, digest[0]) || td__job_digest(b, digest[1]) ||
        strcmp(digest[0], digest[1]) != 0)
        abort();
    build(a);
    td__job_destroy(a);
    td__job_destroy(b);
    free(one.data);
    free(two.data);
    return 0;
}
