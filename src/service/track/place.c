/* place.c -- see place.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/place.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_below.h"
#include "service/track/gpus.h"
#include "service/track/json_io.h"

enum { PATH = 4200, MOST_SLOTS = 65536 };

static json_t *place_json(const td__launch *l, const char *const *hosts)
{
    json_t *parts = json_array(), *gpus = json_array();

    for (int i = 0; i < l->n_parts; i++)
        json_array_append_new(parts, json_pack("[s, i, i]", hosts[l->parts[i].host],
                                               l->parts[i].first, l->parts[i].n));
    for (int i = 0; l->gpus && i < l->members * l->spec->gpus; i++)
        json_array_append_new(gpus, json_integer(l->gpus[i]));
    return json_pack("{s:o, s:o}", "parts", parts, "gpus", gpus);
}

td_status td__place_write(const td__launch *l, const char *const *hosts)
{
    char path[PATH], new[PATH + 8];
    json_t *o = place_json(l, hosts);

    snprintf(path, sizeof path, "%.4096s/place-%.80s", l->g.dir, l->g.token);
    snprintf(new, sizeof new, "%s.new", path);
    unlink(new);
    int fd = o ? open(new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    bool written = fd >= 0 && json_dumpfd(o, fd, 0) == 0;
    if (fd >= 0 && close(fd))
        written = false;
    json_decref(o);
    if (!written || rename(new, path))
        return TD_FAIL(TD_EIO, "%s: cannot write it: %s", path, strerror(errno));
    return TD_OK;
}

static bool read_parts(td__launch *l, const json_t *list, const char *const *hosts, int n_hosts)
{
    int n = (int)json_array_size(list), first = 0;

    l->parts = td__arena_alloc(l->arena, (size_t)(n ? n : 1) * sizeof *l->parts);
    for (l->n_parts = 0; l->parts && l->n_parts < n; l->n_parts++) {
        const json_t *one = json_array_get(list, (size_t)l->n_parts);
        const char *name = json_string_value(json_array_get(one, 0));
        json_int_t from = json_integer_value(json_array_get(one, 1)),
                   count = json_integer_value(json_array_get(one, 2));
        int host = 0;
        while (name && host < n_hosts && strcmp(hosts[host], name) != 0)
            host++;
        if (!name || host == n_hosts || from != first || count < 1 || count > l->members - first)
            return false;
        l->parts[l->n_parts] = (td__part){.host = host, .first = first, .n = (int)count};
        first += (int)count;
    }
    return l->parts && (n_hosts == 0 || first == l->members);
}

static bool read_gpus(td__launch *l, const json_t *list)
{
    size_t n = json_array_size(list);

    if (n != (size_t)l->members * (size_t)l->spec->gpus)
        return false;
    l->gpus = n ? td__arena_alloc(l->arena, n * sizeof *l->gpus) : NULL;
    for (size_t i = 0; l->gpus && i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        if (id < 0 || id >= TD__MOST_GPUS)
            return false;
        l->gpus[i] = (int)id;
    }
    return n == 0 || l->gpus;
}

bool td__place_read(td__launch *l, const char *const *hosts, int n_hosts)
{
    char path[PATH];

    snprintf(path, sizeof path, "%.4096s/place-%.80s", l->g.dir, l->g.token);
    int fd = td__file_open_plain(path, O_RDONLY, 0);
    json_t *o = fd >= 0 ? json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (fd >= 0)
        close(fd);
    bool good = o && read_parts(l, json_object_get(o, "parts"), hosts, n_hosts) &&
                read_gpus(l, json_object_get(o, "gpus"));
    if (!good) {
        l->parts = NULL;
        l->gpus = NULL;
        l->n_parts = 0;
    }
    json_decref(o);
    return good;
}

bool td__place_hosts(const char *path, const char *const *hosts, int n_hosts, bool *named)
{
    int fd = td__file_open_plain(path, O_RDONLY, 0);
    json_t *o = fd >= 0 ? json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *part;
    size_t at;
    bool any = false;

    if (fd >= 0)
        close(fd);
    memset(named, 0, (size_t)n_hosts * sizeof *named);
    json_array_foreach(json_object_get(o, "parts"), at, part)
    {
        const char *name = json_string_value(json_array_get(part, 0));
        for (int i = 0; name && i < n_hosts; i++)
            if (strcmp(hosts[i], name) == 0)
                any = named[i] = true;
    }
    json_decref(o);
    return any;
}

/* A whole number of the text, up to `end`. */
static bool number(const char *text, char end, long lo, long hi, int *out)
{
    char *rest;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    long n = strtol(text, &rest, 10);
    *out = (int)n;
    return !errno && *rest == end && n >= lo && n <= hi;
}

bool td__place_parse_host(const char *text, size_t *nbytes, int *slots, int *gpus)
{
    const char *colon = strrchr(text, ':');
    const char *slash = colon ? strchr(colon, '/') : NULL;

    *nbytes = colon ? (size_t)(colon - text) : strlen(text);
    *slots = 1;
    *gpus = -1;
    if (*nbytes == 0 || text[0] == '-' || strcspn(text, ",/ ") < *nbytes)
        return false;
    return !colon || (number(colon + 1, slash ? '/' : '\0', 1, MOST_SLOTS, slots) &&
                      (!slash || number(slash + 1, '\0', 0, TD__MOST_GPUS, gpus)));
}
