/* store_server_impl.h -- the parts of a store server, shared by its files:
 *
 *     store_server.c  the thread: connections in, frames out
 *     store_keys.c    what a request does to the keys; waits (the root's work)
 *     store_up.c      what a store below another does instead: forwards, and remembers answers
 *     store_groups.c  members, their deaths, what they tell each other
 *
 * Everything here runs on the server's thread, without locks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_STORE_SERVER_IMPL_H
#define TD_NET_STORE_SERVER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/conn.h"
#include "net/gate.h"
#include "net/store.h"
#include "net/store_table.h"
#include "net/store_wire.h"

typedef struct td__ss_client {
    struct td__ss_client *next;
    td__conn conn;
    uint8_t *in; /* bytes received, not yet a whole frame */
    size_t in_used, in_cap;
    uint8_t *out; /* bytes [out_sent, out_used) are to be sent */
    size_t out_sent, out_used, out_cap;
    bool watches_write;
    bool gone; /* to be closed at the end of the round */
    bool bye;
    bool is_store;  /* one below, which keeps copies of answers */
    uint64_t stamp; /* the last event that it was given: one copy each */
} td__ss_client;

/* A request that waits for keys: on the list of the first key that is missing. */
struct td__store_waiter {
    td__store_waiter *next; /* waiting for the same key */
    td__store_entry *entry;
    td__ss_client *client;
    uint32_t id;
    bool all;
    int index, n; /* all: keys before index exist */
    char prefix[TD_STORE_KEY_BYTES + 1];
    td__store_waiter *server_prev, *server_next; /* all waiters of the server */
};

typedef struct td__ss_forward td__ss_forward;
typedef struct td__ss_group td__ss_group;

struct td__store_server {
    pthread_t thread;
    bool running;
    atomic_bool lost; /* the store above */
    int epoll, wake;
    td__secret secret;
    td__tls *tls;
    td__gate *gate;
    char address[256], parent[256];
    td__ss_client *clients;
    int n_clients;
    td__store_table keys;
    td__store_waiter *waiters;
    td__ss_client *up;    /* NULL: this is the root */
    td__store_table alls; /* answers to wait_all from above, by "n prefix" */
    td__ss_forward *forwards;
    uint32_t last_forward;
    td__ss_group *groups;
    uint64_t last_stamp;
    int n_members;
    uint64_t looked_ns; /* at the connections, for silence */
};

/* store_server.c: queue an answer; a client that does not read is dropped. */
void td__ss_reply(td__store_server *s, td__ss_client *c, uint32_t id, const td__store_reply *reply,
                  const void *value, size_t nbytes);
/* The status, with this thread's last error as its text. */
void td__ss_reply_error(td__store_server *s, td__ss_client *c, uint32_t id, td_status st);
/* A request, or an event, in its wire form. */
void td__ss_request(td__store_server *s, td__ss_client *c, const td__store_parts *p, uint32_t id);

/* store_keys.c */
void td__ss_keys_handle(td__store_server *s, td__ss_client *c, const td__store_parts *p);
void td__ss_keys_cancel(td__store_server *s, const td__ss_client *c, const uint32_t *id);
void td__ss_keys_fini(td__store_server *s);

/* store_up.c */
void td__ss_up_handle(td__store_server *s, td__ss_client *c, const td__store_parts *p);
/* A reply from above. */
void td__ss_up_answer(td__store_server *s, const td__frame *f, const void *payload);
void td__ss_up_cancel(td__store_server *s, const td__ss_client *c, const uint32_t *id);
/* A key changed that stores below may have copies of; this one has too, if it is below itself. */
void td__ss_forget(td__store_server *s, const char *key);
void td__ss_up_fini(td__store_server *s);

/* store_groups.c */
void td__ss_groups_handle(td__store_server *s, td__ss_client *c, const td__store_parts *p);
/* The members of a connection that ended. */
void td__ss_groups_lost(td__store_server *s, td__ss_client *c);
bool td__ss_groups_alive(const td__store_server *s);
void td__ss_groups_fini(td__store_server *s);

#endif
