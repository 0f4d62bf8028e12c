/* arena.c -- many small objects that die together.
 *
 * A list of chunks, each twice the size of the one before up to a limit; an object is cut from the
 * newest chunk, or gets a chunk of its own when it is large. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum { ALIGN = 16, FIRST_CHUNK = 4 << 10, LARGEST_CHUNK = 1 << 20 };

typedef struct chunk {
    struct chunk *next;
    size_t used, nbytes; /* of the part after this header */
} chunk;

enum { CHUNK_HEADER = (sizeof(chunk) + ALIGN - 1) / ALIGN * ALIGN };

struct td__arena {
    chunk *newest;
    size_t next_bytes; /* of the next ordinary chunk */
};

td_status td__arena_create(td__arena **out)
{
    td__arena *a = td__calloc(1, sizeof *a);
    if (!a)
        return TD_FAIL(TD_ENOMEM, "no memory for an arena");
    a->next_bytes = FIRST_CHUNK;
    *out = a;
    return TD_OK;
}

void td__arena_destroy(td__arena *a)
{
    if (!a)
        return;
    for (chunk *c = a->newest, *next; c; c = next) {
        next = c->next;
        td__free(c);
    }
    td__free(a);
}

static chunk *add_chunk(size_t nbytes)
{
    chunk *c = td__calloc(1, CHUNK_HEADER + nbytes);
    if (!c)
        return NULL;
    c->nbytes = nbytes;
    return c;
}

void *td__arena_alloc(td__arena *a, size_t nbytes)
{
    if (nbytes > PTRDIFF_MAX / 2)
        return NULL;

    size_t need = td__align_up(nbytes ? nbytes : 1, ALIGN);
    chunk *c = a->newest;
    if (!c || c->nbytes - c->used < need) {
        bool large = need > a->next_bytes / 2;
        c = add_chunk(large ? need : a->next_bytes);
        if (!c)
            return NULL;
        if (large && a->newest) { /* behind the newest, whose rest stays usable */
            c->next = a->newest->next;
            a->newest->next = c;
        } else {
            c->next = a->newest;
            a->newest = c;
        }
        if (!large && a->next_bytes < LARGEST_CHUNK)
            a->next_bytes *= 2;
    }
    void *p = (char *)c + CHUNK_HEADER + c->used;
    c->used += need;
    return p;
}

char *td__arena_strdup(td__arena *a, const char *s)
{
    size_t nbytes = strlen(s) + 1;
    char *copy = td__arena_alloc(a, nbytes);
    return copy ? memcpy(copy, s, nbytes) : NULL;
}

char *td__arena_printf(td__arena *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (len < 0)
        return NULL;

    char *s = td__arena_alloc(a, (size_t)len + 1);
    if (!s)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(s, (size_t)len + 1, fmt, ap);
    va_end(ap);
    return s;
}
