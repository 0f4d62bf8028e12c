/* hosts.c -- the list of hosts, and the way to them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"

enum { MAX_SLOTS = 65536 };

static bool is_local(const char *name)
{
    char own[128] = "";
    if (gethostname(own, sizeof own - 1))
        own[0] = 0;
    return !strcmp(name, "localhost") || !strcmp(name, "127.0.0.1") || !strcmp(name, own);
}

static td_status add_host(td__hosts *h, const char *name, size_t length, long slots)
{
    td__host one = {.count = (int)slots};
    if (!length || length >= sizeof one.name || name[0] == '-')
        return TD_FAIL(TD_EINVAL, "\"%.*s\" is not the name of a host", (int)length, name);
    memcpy(one.name, name, length);
    one.local = is_local(one.name);
    for (int i = 0; i < h->n; i++)
        if (!strcmp(h->host[i].name, one.name))
            return TD_FAIL(TD_EINVAL,
                           "host %s is named twice; give it one entry with all its "
                           "slots",
                           one.name);
    td__host *more = td__realloc(h->host, (size_t)(h->n + 1) * sizeof *more);
    if (!more)
        return TD_FAIL(TD_ENOMEM, "no memory for the list of hosts");
    h->host = more;
    h->host[h->n++] = one;
    return TD_OK;
}

/* One entry, NAME[:SLOTS] or NAME slots=SLOTS, in text[0..length). */
static td_status parse_entry(td__hosts *h, const char *text, size_t length)
{
    size_t name = 0;
    while (name < length && text[name] != ':' && !isspace((unsigned char)text[name]))
        name++;
    size_t at = name;
    while (at < length && (text[at] == ':' || isspace((unsigned char)text[at])))
        at++;
    if (length - at > 6 && !strncmp(text + at, "slots=", 6))
        at += 6;
    long slots = 1;
    if (name < length) {
        char *end;
        slots = strtol(text + at, &end, 10);
        if (at == length || end != text + length || slots < 1 || slots > MAX_SLOTS)
            return TD_FAIL(TD_EINVAL,
                           "host \"%.*s\": expected NAME or NAME:SLOTS, with 1 to %d "
                           "slots",
                           (int)length, text, MAX_SLOTS);
    }
    return add_host(h, text, name, slots);
}

/* Hand out the ranks. */
static td_status place(td__hosts *h, int size)
{
    int total = 0, n = 0;
    for (int i = 0; i < h->n; i++)
        total += h->host[i].count;
    if (!total)
        return TD_FAIL(TD_EINVAL, "the list of hosts is empty");
    if (size > total)
        return TD_FAIL(TD_EINVAL, "%d ranks, but the hosts have %d slots", size, total);
    h->size = size ? size : total;
    for (int left = h->size; left > 0; n++) {
        td__host *one = &h->host[n];
        one->first = h->size - left;
        if (one->count > left)
            one->count = left;
        left -= one->count;
    }
    h->n = n;
    return TD_OK;
}

td_status td__hosts_place(const td__hosts *all, int size, td__hosts *out)
{
    td__hosts h = {.host = td__calloc((size_t)all->n + 1, sizeof *h.host)};
    int slots = 0;
    if (!h.host)
        return TD_FAIL(TD_ENOMEM, "no memory for the list of hosts");
    for (int i = 0; i < all->n; i++)
        if (!all->host[i].lost) {
            slots += all->host[i].count;
            h.host[h.n++] = all->host[i];
        }
    td_status st = place(&h, size < slots ? size : slots);
    if (st)
        td__hosts_fini(&h);
    *out = h;
    return st;
}

static td_status parse_list(const char *text, size_t nbytes, bool lines, int size, td__hosts *out)
{
    td__hosts h = {0};
    td_status st = TD_OK;
    for (size_t at = 0; lines ? at < nbytes : at <= nbytes;) {
        size_t end = at;
        while (end < nbytes && text[end] != (lines ? '\n' : ','))
            end++;
        size_t next = end + 1;
        for (size_t k = at; k < end && lines; k++)
            if (text[k] == '#')
                end = k;
        while (at < end && isspace((unsigned char)text[at]))
            at++;
        while (at < end && isspace((unsigned char)text[end - 1]))
            end--;
        if (at < end || !lines)
            TD_TRY_OR(st, fail, parse_entry(&h, text + at, end - at));
        at = next;
    }
    TD_TRY_OR(st, fail, place(&h, size));
    *out = h;
    return TD_OK;
fail:
    td__hosts_fini(&h);
    return st;
}

td_status td__hosts_parse(const char *text, int size, td__hosts *out)
{
    return parse_list(text, strlen(text), false, size, out);
}

td_status td__hosts_read(const char *path, int size, td__hosts *out)
{
    td__file_map map;
    TD_TRY(td__file_map_open(&map, path));
    char *text = td__malloc(map.nbytes + 1); /* strtol wants an end */
    td_status st;
    if (text) {
        memcpy(text, map.data, map.nbytes);
        text[map.nbytes] = 0;
        st = parse_list(text, map.nbytes, true, size, out);
    } else {
        st = TD_FAIL(TD_ENOMEM, "no memory to read %s", path);
    }
    td__free(text);
    td__file_map_close(&map);
    return st;
}

void td__hosts_fini(td__hosts *h)
{
    td__free(h->host);
    *h = (td__hosts){0};
}
