/* json_io.c -- JSON of other systems' APIs (see json_io.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/json_io.h"

#include <string.h>

enum { LINE_MOST = 4 << 20 };

static int append(const char *data, size_t nbytes, void *to)
{
    td__text_append(to, data, nbytes);
    return 0;
}

void td__json_write(const json_t *j, td__text *out)
{
    if (json_dump_callback(j, append, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        out->failed = true;
}

const char *td__json_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

bool td__json_lines_feed(void *lines, const void *data, size_t nbytes)
{
    td__json_lines *l = lines;
    size_t begin = 0;
    bool more = true;

    td__text_append(&l->rest, data, nbytes);
    if (l->rest.failed || l->rest.used > LINE_MOST)
        return false;
    while (more) {
        const char *newline =
            l->rest.data ? memchr(l->rest.data + begin, '\n', l->rest.used - begin) : NULL;
        if (!newline)
            break;
        size_t n = (size_t)(newline - (l->rest.data + begin));
        json_t *o = json_loadb(l->rest.data + begin, n, 0, NULL);
        if (o)
            more = l->line(l->user, o);
        json_decref(o);
        begin += n + 1;
    }
    if (begin > 0) { /* what is left moves to the front */
        memmove(l->rest.data, l->rest.data + begin, l->rest.used - begin);
        l->rest.used -= begin;
        l->rest.data[l->rest.used] = '\0';
    }
    return more;
}

void td__json_lines_fini(td__json_lines *l)
{
    td__text_fini(&l->rest);
}
