/* guard.c -- see guard.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fail.h"

enum {
    NAME_ROOM = 256,
    KEY = 8,        /* bytes that name a client: an IPv4 address or an IPv6 /64 */
    BUCKETS = 4096, /* clients remembered at a time */
    PROBES = 8,
};

/* The name without port and brackets; false where the text is not a host at all. */
static bool host_name(const char *host, char name[NAME_ROOM])
{
    const char *end;
    bool address = *host == '[';
    host += address;
    end = address ? strchr(host, ']') : host + strcspn(host, ":");
    if (!end || end == host || end - host >= NAME_ROOM)
        return false;
    memcpy(name, host, (size_t)(end - host));
    name[end - host] = 0;
    end += address;
    if (*end == 0)
        return true;
    if (*end != ':' || !end[1])
        return false;
    return end[1 + strspn(end + 1, "0123456789")] == 0;
}

static bool listed(const char *what, const char *const *list)
{
    for (; list && *list; list++)
        if (strcmp(*list, "*") == 0 || strcasecmp(*list, what) == 0)
            return true;
    return false;
}

bool td__guard_host(const char *host, const char *const *names)
{
    char name[NAME_ROOM];
    unsigned char address[16];
    if (!host || !host_name(host, name))
        return false;
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1 ||
           inet_pton(AF_INET6, name, address) == 1 || listed(name, names);
}

bool td__guard_origin(const char *origin, const char *host, const char *const *origins)
{
    if (listed(origin, origins))
        return true;
    /* A proxy that ends TLS changes the scheme, not the name. */
    const char *authority = strncmp(origin, "http://", 7) == 0    ? origin + 7
                            : strncmp(origin, "https://", 8) == 0 ? origin + 8
                                                                  : NULL;
    return authority && host && strcasecmp(authority, host) == 0;
}

typedef struct bucket {
    uint8_t key[KEY + 1]; /* the family before the address; 0: unused */
    double tokens;        /* as of `at` */
    uint64_t at;
} bucket;

struct td__rates {
    double per_ns, burst;
    bucket buckets[BUCKETS];
};

td_status td__rates_create(unsigned per_s, unsigned burst, td__rates **out)
{
    td__rates *r = td__calloc(1, sizeof *r);
    *out = r;
    if (!r)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    r->per_ns = per_s * 1e-9;
    r->burst = burst;
    return TD_OK;
}

void td__rates_destroy(td__rates *r)
{
    td__free(r);
}

/* An IPv4 client of a socket for both is the same client. */
static void client_key(const struct sockaddr *client, uint8_t key[KEY + 1])
{
    memset(key, 0, KEY + 1);
    if (client && client->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)client)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(a)) {
            key[0] = (uint8_t)AF_INET | 0x80;
            memcpy(key + 1, a->s6_addr + 12, 4);
            return;
        }
    }
    key[0] = (uint8_t)(client ? client->sa_family : AF_UNSPEC) | 0x80;
    if (client && client->sa_family == AF_INET)
        memcpy(key + 1, &((const struct sockaddr_in *)(const void *)client)->sin_addr, 4);
    else if (client && client->sa_family == AF_INET6)
        memcpy(key + 1, &((const struct sockaddr_in6 *)(const void *)client)->sin6_addr, KEY);
}

static uint32_t place_of(const uint8_t key[KEY + 1])
{
    uint32_t hash = 2166136261u;

    for (int i = 0; i <= KEY; i++)
        hash = (hash ^ key[i]) * 16777619u;
    return hash % BUCKETS;
}

static double refilled(const td__rates *r, const bucket *b, uint64_t now_ns)
{
    double tokens = b->tokens + (double)(now_ns - b->at) * r->per_ns;
    return tokens < r->burst ? tokens : r->burst;
}

bool td__rates_take(td__rates *r, const struct sockaddr *client, uint64_t now_ns)
{
    uint8_t key[KEY + 1];
    bucket *b = NULL;
    client_key(client, key);
    uint32_t place = place_of(key);
    for (uint32_t i = 0; i < PROBES; i++) {
        bucket *at = &r->buckets[(place + i) % BUCKETS];
        if (memcmp(at->key, key, sizeof key) == 0) {
            b = at;
            break;
        }
        /* A bucket as full as a new one can be forgotten; otherwise the fullest is. */
        if (!b || !at->key[0] || (b->key[0] && refilled(r, at, now_ns) > refilled(r, b, now_ns)))
            b = at;
        if (!at->key[0])
            break;
    }
    if (memcmp(b->key, key, sizeof key) != 0) {
        memcpy(b->key, key, sizeof key);
        b->tokens = r->burst;
    } else {
        b->tokens = refilled(r, b, now_ns);
    }
    b->at = now_ns;
    if (b->tokens < 1)
        return false;
    b->tokens -= 1;
    return true;
}

/* ---- connections ---- */

typedef struct client {
    uint8_t key[KEY + 1];
    unsigned n;
    struct client *next;
} client;

struct td__clients {
    unsigned most;
    client *table[BUCKETS];
};

td_status td__clients_create(unsigned most, td__clients **out)
{
    td__clients *c = td__calloc(1, sizeof *c);

    *out = c;
    if (!c)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    c->most = most;
    return TD_OK;
}

void td__clients_destroy(td__clients *c)
{
    for (int i = 0; c && i < BUCKETS; i++)
        for (client *at = c->table[i], *next; at; at = next) {
            next = at->next;
            td__free(at);
        }
    td__free(c);
}

static bool is_counted(const struct sockaddr *a)
{
    return a && (a->sa_family == AF_INET || a->sa_family == AF_INET6);
}

static client *find_client(const td__clients *c, const uint8_t key[KEY + 1])
{
    client *at = c->table[place_of(key)];

    while (at && memcmp(at->key, key, KEY + 1) != 0)
        at = at->next;
    return at;
}

bool td__clients_room(const td__clients *c, const struct sockaddr *from)
{
    uint8_t key[KEY + 1];

    if (!is_counted(from))
        return true;
    client_key(from, key);
    const client *at = find_client(c, key);
    return !at || at->n < c->most;
}

void td__clients_enter(td__clients *c, const struct sockaddr *from)
{
    uint8_t key[KEY + 1];

    if (!is_counted(from))
        return;
    client_key(from, key);
    client *at = find_client(c, key);
    if (!at) {
        at = td__calloc(1, sizeof *at);
        if (!at)
            return; /* not counted */
        memcpy(at->key, key, sizeof key);
        at->next = c->table[place_of(key)];
        c->table[place_of(key)] = at;
    }
    at->n++;
}

void td__clients_leave(td__clients *c, const struct sockaddr *from)
{
    uint8_t key[KEY + 1];

    if (!is_counted(from))
        return;
    client_key(from, key);
    client *at = find_client(c, key);
    if (!at || --at->n)
        return;
    client **link = &c->table[place_of(key)];
    while (*link != at)
        link = &(*link)->next;
    *link = at->next;
    td__free(at);
}
