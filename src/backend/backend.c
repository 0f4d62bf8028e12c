/* backend.c -- backends by name, and what those that compute on the host share; see host.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "device/cuda/describe.h"
#include "graph/backend_auto.h"

static const struct {
    const char *name;
    td_status (*create)(td_backend **out);
    td_backend_traits traits;
} BACKENDS[] = {
    {"cpu", td__cpu_create, {.host_reads = true, .on_processor = true}},
    {"ref", td__ref_create, {.host_reads = true, .on_processor = true}},
    {"null", td__null_create, {.host_reads = true, .on_processor = true}},
    {"far", td__far_create, {.on_processor = true}},
    {"cuda", td__cuda_create, {0}},
};

td_backend_traits td__backend_traits(const char *name)
{
    size_t length = name ? strcspn(name, ":") : 0; /* "cuda:1" */
    for (int i = 0; i < TD_LEN(BACKENDS); i++)
        if (strlen(BACKENDS[i].name) == length && !strncmp(BACKENDS[i].name, name, length))
            return BACKENDS[i].traits;
    return BACKENDS[0].traits;
}

td_status td__backend_create(const char *name, td_backend **out)
{
    *out = NULL;
    if (strncmp(name, "cuda:", 5) == 0)
        return td__cuda_create_on(name, out);
    for (int i = 0; i < TD_LEN(BACKENDS); i++)
        if (strcmp(BACKENDS[i].name, name) == 0)
            return BACKENDS[i].create(out);
    return TD_FAIL(TD_EINVAL, "no backend named \"%s\"; there are cpu, cuda, ref, null and far",
                   name);
}

/* The parts of what td__backend_gpu says, one after another: *at is behind the last one; 0: there
 * is none left. */
static size_t next_part(const char **at, const char **part)
{
    *part = *at + strspn(*at, ", ");
    size_t length = strcspn(*part, ",");
    *at = *part + length;
    return length;
}

/* Of "NAME VERSION"; 0: that part has no version. */
static size_t name_of(const char *part, size_t length)
{
    while (length && part[length - 1] != ' ')
        length--;
    return length;
}

bool td__backend_same_gpu(const char *a, const char *b)
{
    const char *x, *y;
    size_t n, m;
    for (int i = 0; i < 2; i++) { /* the GPU, its driver */
        n = next_part(&a, &x);
        m = next_part(&b, &y);
        if (n != m || strncmp(x, y, n) != 0)
            return false;
    }
    while ((n = next_part(&a, &x)))
        for (const char *rest = b; (m = next_part(&rest, &y));) {
            size_t name = name_of(x, n);
            bool both = name && name == name_of(y, m) && strncmp(x, y, name) == 0;
            if (both && (n != m || strncmp(x, y, n) != 0))
                return false;
        }
    return true;
}

#if TD_CUDA
void td__backend_gpu(const char *name, char *out, size_t room)
{
    td__cuda_kind kind;
    char libraries[96];
    *out = 0;
    if (!name || strncmp(name, "cuda", 4) != 0 ||
        td__cuda_describe(name[4] ? (int)strtol(name + 5, NULL, 10) : 0, &kind))
        return;
    td__cuda_libraries(libraries, sizeof libraries);
    snprintf(out, room, "%s, driver for CUDA %d.%d%s", kind.name, kind.driver / 1000,
             kind.driver % 1000 / 10, libraries);
}

void td__backend_for(const char *name, int local_rank, char *out, size_t room)
{
    int gpus = 0;
    snprintf(out, room, "%s", name ? name : "");
    if (name && strcmp(name, "cuda") == 0 && td__cuda_count(&gpus) == TD_OK && gpus > 1)
        snprintf(out, room, "cuda:%d", local_rank % gpus);
}

const char *td__backend_auto(void)
{
    int gpus = 0;
    return td__cuda_count(&gpus) == TD_OK && gpus > 0 ? "cuda" : "cpu";
}
#else
void td__backend_gpu(const char *name, char *out, size_t room)
{
    (void)name, (void)room;
    *out = 0;
}

void td__backend_for(const char *name, int local_rank, char *out, size_t room)
{
    (void)local_rank;
    snprintf(out, room, "%s", name ? name : "");
}

const char *td__backend_auto(void)
{
    return "cpu";
}

td_status td__cuda_create(td_backend **out)
{
    return td__cuda_create_on("cuda", out);
}

td_status td__cuda_create_on(const char *device, td_backend **out)
{
    (void)device;
    *out = NULL;
    return TD_FAIL(TD_ENOTSUP,
                   "backend cuda: this build has none; configure it where nvcc is (docs/gpu.md), "
                   "or set train.backend to cpu");
}
#endif

void td__backend_destroy(td_backend *b)
{
    if (b)
        b->ops->destroy(b);
}

td_status td__host_create(const td_backend_ops *ops, size_t size, td_backend **out)
{
    return td__host_create_on(ops, size, ops->device, out);
}

td_status td__host_create_on(const td_backend_ops *ops, size_t size, const char *device,
                             td_backend **out)
{
    *out = td__calloc(1, size);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "no memory for the %s backend", ops->name);
    (*out)->ops = ops;
    td_status st = td__device_open(device, &(*out)->device);
    if (st) {
        td__free(*out);
        *out = NULL;
    }
    return st;
}

void td__host_destroy(td_backend *b)
{
    td__device_release(b->device);
    td__free(b);
}

void td__host_enter(td_backend *b, unsigned *saved)
{
    (void)b;
    *saved = 0;
}

void td__host_leave(td_backend *b, unsigned saved)
{
    (void)b;
    (void)saved;
}
