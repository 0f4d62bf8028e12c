/* store_groups.c -- members of groups: who joined over which connection, who died, who said what.
 *
 * Every store knows the members below it. Something that happens to a member is told to every
 * connection with members of the same group except the one it came from, and to the store above,
 * which does the same: in a tree, everybody hears it once. Deaths are remembered for members that
 * join later, who may hear of one twice. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "net/store_server_impl.h"

enum { MOST_MEMBERS = 1 << 18 };

typedef struct member {
    struct member *next;
    int64_t rank;
    td__ss_client *client; /* NULL: dead */
} member;

struct td__ss_group {
    td__ss_group *next;
    member *members;
    char name[TD_STORE_KEY_BYTES + 1];
};

static td__ss_group *find_group(const td__store_server *s, const char *name)
{
    td__ss_group *g = s->groups;

    while (g && strcmp(g->name, name) != 0)
        g = g->next;
    return g;
}

static member *find_member(const td__ss_group *g, int64_t rank)
{
    member *m = g->members;

    while (m && m->rank != rank)
        m = m->next;
    return m;
}

static void event_to(td__store_server *s, td__ss_client *c, const char *group, int64_t rank,
                     const void *what, size_t nbytes)
{
    td__store_parts p = {.op = TD_STORE_EVENT, .number = rank, .value = what, .nbytes = nbytes};

    snprintf(p.key, sizeof p.key, "%s", group);
    td__ss_request(s, c, &p, 0);
}

static void spread(td__store_server *s, const td__ss_client *from, const char *group, int64_t rank,
                   const void *what, size_t nbytes)
{
    const td__ss_group *g = find_group(s, group);

    s->last_stamp++;
    for (const member *m = g ? g->members : NULL; m; m = m->next) {
        td__ss_client *c = m->client;
        if (!c || c == from || c->bye || c->stamp == s->last_stamp)
            continue;
        c->stamp = s->last_stamp;
        event_to(s, c, group, rank, what, nbytes);
    }
}

static void pass_up(td__store_server *s, td__store_op op, const char *group, int64_t rank,
                    const void *what, size_t nbytes)
{
    td__store_parts p = {.op = op, .number = rank, .value = what, .nbytes = nbytes};

    if (!s->up)
        return;
    snprintf(p.key, sizeof p.key, "%s", group);
    td__ss_request(s, s->up, &p, 0);
}

static td_status enter_group(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    td__ss_group *g = find_group(s, p->key);
    member *m = g ? find_member(g, p->number) : NULL;

    if (p->number < 0 || p->number >= TD_STORE_MOST_RANKS)
        return TD_FAIL(TD_EINVAL, "store: rank %lld of group %s", (long long)p->number, p->key);
    if (m && m->client)
        return TD_FAIL(TD_EINVAL, "store: rank %lld of group %s has already joined",
                       (long long)p->number, p->key);
    if (!g) {
        g = td__calloc(1, sizeof *g);
        if (!g)
            return TD_FAIL(TD_ENOMEM, "store: group %s", p->key);
        memcpy(g->name, p->key, sizeof g->name);
        g->next = s->groups;
        s->groups = g;
    }
    if (!m) {
        m = s->n_members < MOST_MEMBERS ? td__calloc(1, sizeof *m) : NULL;
        if (!m)
            return TD_FAIL(TD_ENOMEM, "store: more than %d members", s->n_members);
        s->n_members++;
        m->rank = p->number;
        m->next = g->members;
        g->members = m;
    }
    m->client = c;
    return TD_OK;
}

static void join(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    static const td__store_reply OK = {.status = TD_OK};
    td_status st = enter_group(s, c, p);

    if (st) {
        td__ss_reply_error(s, c, p->id, st);
        return;
    }
    if (s->up)
        td__ss_up_handle(s, c, p); /* the root's answer is the answer */
    else
        td__ss_reply(s, c, p->id, &OK, NULL, 0);
    for (const member *m = find_group(s, p->key)->members; m; m = m->next)
        if (!m->client)
            event_to(s, c, p->key, m->rank, "dead", 4);
}

static void remove_member(td__store_server *s, td__ss_group *g, member *gone)
{
    member **at = &g->members;

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    s->n_members--;
    td__free(gone);
    if (g->members)
        return;
    td__ss_group **slot = &s->groups;
    while (*slot != g)
        slot = &(*slot)->next;
    *slot = g->next;
    td__free(g);
}

/* A member left or died; c is where it was. */
static void end_member(td__store_server *s, const td__ss_client *c, td__ss_group *g, member *m,
                       bool dead)
{
    char name[TD_STORE_KEY_BYTES + 1];
    int64_t rank = m->rank;
    const char *what = dead ? "dead" : "left";

    memcpy(name, g->name, sizeof name);
    m->client = NULL;
    if (!dead)
        remove_member(s, g, m);
    spread(s, c, name, rank, what, strlen(what));
    pass_up(s, dead ? TD_STORE_DEAD : TD_STORE_LEAVE, name, rank, NULL, 0);
}

void td__ss_groups_handle(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    td__ss_group *g = find_group(s, p->key);
    member *m = g ? find_member(g, p->number) : NULL;

    switch (p->op) {
    case TD_STORE_JOIN: join(s, c, p); break;
    case TD_STORE_EVENT: spread(s, c, p->key, p->number, p->value, p->nbytes); break;
    case TD_STORE_TELL:
        spread(s, c, p->key, p->number, p->value, p->nbytes);
        pass_up(s, TD_STORE_TELL, p->key, p->number, p->value, p->nbytes);
        break;
    default: /* LEAVE, DEAD */
        if (m && m->client == c)
            end_member(s, c, g, m, p->op == TD_STORE_DEAD);
    }
}

void td__ss_groups_lost(td__store_server *s, td__ss_client *c)
{
    td__ss_group *next_group;
    member *next;

    for (td__ss_group *g = s->groups; g; g = next_group) {
        next_group = g->next;
        for (member *m = g->members; m; m = next) {
            next = m->next;
            if (m->client == c)
                end_member(s, c, g, m, !c->bye);
        }
    }
}

bool td__ss_groups_alive(const td__store_server *s)
{
    for (const td__ss_group *g = s->groups; g; g = g->next)
        for (const member *m = g->members; m; m = m->next)
            if (m->client)
                return true;
    return false;
}

void td__ss_groups_fini(td__store_server *s)
{
    while (s->groups) {
        td__ss_group *g = s->groups;
        s->groups = g->next;
        while (g->members) {
            member *m = g->members;
            g->members = m->next;
            td__free(m);
        }
        td__free(g);
    }
}
