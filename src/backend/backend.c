/* backend.c -- backends by name, and what those that compute on the host share; see host.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/backend_auto.h"

#define TD_BACKEND_INNER TD_BACKEND
static const struct {
    const char *name;
    td_status (*create)(td_backend **out);
    td_backend_traits traits;
} BACKENDS[] = {
#define TD_BACKEND(name, ...) {#name, td__##name##_create, {__VA_ARGS__}},
#include "backend/backends.def"
#undef TD_BACKEND
};
static const char NAMES[] =
#define TD_BACKEND(name, ...) " " #name
#include "backend/backends.def"
#undef TD_BACKEND
    ;
#undef TD_BACKEND_INNER

const char td__backend_words[] =
#define TD_BACKEND(name, ...) #name " "
#define TD_BACKEND_INNER(name, ...)
#include "backend/backends.def"
#undef TD_BACKEND
#undef TD_BACKEND_INNER
    "auto";

/* The row of "cuda" or "cuda:1", -1 for an unknown name; *number: 1, without one 0. */
static int row_of(const char *name, int *number)
{
    size_t length = name ? strcspn(name, ":") : 0;
    *number = length && name[length] ? (int)strtol(name + length + 1, NULL, 10) : 0;
    for (int i = 0; i < TD_LEN(BACKENDS); i++)
        if (strlen(BACKENDS[i].name) == length && !strncmp(BACKENDS[i].name, name, length))
            return i;
    return -1;
}

td_backend_traits td__backend_traits(const char *name)
{
    int number, i = row_of(name, &number);
    return BACKENDS[i < 0 ? 0 : i].traits;
}

const char *td__backend_name(int i)
{
    return i < TD_LEN(BACKENDS) ? BACKENDS[i].name : NULL;
}

td_status td__backend_create(const char *name, td_backend **out)
{
    int number, i = row_of(name, &number);
    bool numbered = strchr(name, ':') != NULL;
    *out = NULL;
    if (i < 0 || (numbered && !BACKENDS[i].traits.gpus))
        return TD_FAIL(TD_EINVAL, "no backend named \"%s\" (known:%s)", name, NAMES);
    return numbered ? BACKENDS[i].traits.gpus->create(name, out) : BACKENDS[i].create(out);
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

void td__backend_gpu(const char *name, char *out, size_t room)
{
    int number;
    (void)row_of(name, &number);
    const td__gpus *gpus = td__backend_traits(name).gpus;
    td__gpu_info info;
    bool known = gpus && !gpus->describe(number, &info);
    snprintf(out, room, "%s", known ? info.bits : "");
}

void td__backend_for(const char *name, int local_rank, char *out, size_t room)
{
    const td__gpus *gpus = td__backend_traits(name).gpus;
    int n = 0;
    if (gpus && !strchr(name, ':') && !gpus->count(&n) && n > 1)
        snprintf(out, room, "%s:%d", name, local_rank % n);
    else
        snprintf(out, room, "%s", name ? name : "");
}

/* The first GPU decides, which one rank takes; further ranks are told if theirs cannot. */
static bool runs_on_first(const td__gpus *gpus)
{
    if (!gpus->runs_on || !gpus->runs_on(0))
        return true;
    TD_LOG(WARN, BACKEND, "train.backend auto is cpu: %s", td_last_error());
    return false;
}

const char *td__backend_auto(void)
{
    for (int i = 0; i < TD_LEN(BACKENDS); i++) {
        const td__gpus *gpus = BACKENDS[i].traits.gpus;
        int n;
        if (gpus && !gpus->count(&n) && n > 0 && runs_on_first(gpus))
            return BACKENDS[i].name;
    }
    return BACKENDS[0].name;
}

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
