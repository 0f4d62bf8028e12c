/* store.h -- the rendezvous store: a small key-value service that lives in the agent (or in rank
 * 0 of a world without one), and its client.
 *
 * Keys are texts of at most 255 bytes, values at most 1 MB. Every connection is authenticated
 * (handshake.h). A client's wait is answered as soon as the key exists. Clients may register as
 * a rank of a group: the server then tells all clients of the group when one's connection ends
 * without goodbye, and passes on their status lines, which is how ranks that are no neighbours
 * learn of a death, and what the stall report is made of.
 *
 * Bootstrap is a tree: ranks talk to the agent of their host, agents to the agent above them; an
 * agent answers from its own copy what it has seen once, until it hears that it has changed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_STORE_H
#define TD_NET_STORE_H

#include "base/deadline.h"
#include "tandem/status.h"

typedef struct td__secret {
    uint8_t bytes[32];
} td__secret;

/* A running server, with a thread of its own. address: "127.0.0.1:0" picks a port; "unix:@name" an
 * abstract socket. parent NULL: this is the root. */
typedef struct td__store_server td__store_server;
typedef struct td__store_opts {
    const char *listen;  /* "127.0.0.1:0" */
    const char *parent;  /* address of the store above; NULL: root */
    const char *tls_dir; /* cert.pem, key.pem made by the launcher; NULL: no TLS */
} td__store_opts;
TD_NODISCARD td_status td__store_server_create(const td__secret *secret, const td__store_opts *o,
                                               td__store_server **out);
void td__store_server_destroy(td__store_server *s);
/* The store above is gone, and with it all clients of this one. Any thread. */
bool td__store_server_lost(const td__store_server *s);
const char *td__store_server_address(const td__store_server *s); /* "127.0.0.1:40123" */

typedef struct td__store td__store; /* a client; any number of threads may use one */
TD_NODISCARD td_status td__store_connect(const char *address, const td__secret *secret,
                                         const td__store_opts *o, td__deadline until,
                                         td__store **out);
/* Says goodbye; NULL is allowed. Not from an event's callback. */
void td__store_close(td__store *s);
/* From now on closing does not wait for the server to hear the goodbye: it may be stopped, and what
 * it would tell the others is obsolete. */
void td__store_hurry(td__store *s);
const char *td__store_address(const td__store *s); /* of the server */

TD_NODISCARD td_status td__store_set(td__store *s, const char *key, const void *value,
                                     size_t nbytes, td__deadline until);
/* Waits until the key exists. The value is the caller's (td__free). */
TD_NODISCARD td_status td__store_wait(td__store *s, const char *key, td__deadline until,
                                      void **value, size_t *nbytes);
/* TD_OK with *value NULL if there is none. */
TD_NODISCARD td_status td__store_get(td__store *s, const char *key, td__deadline until,
                                     void **value, size_t *nbytes);
/* Adds to a decimal counter that starts at 0; the new value. */
TD_NODISCARD td_status td__store_add(td__store *s, const char *key, int64_t delta,
                                     td__deadline until, int64_t *out);
/* If the value is `expect` (NULL: absent), replace it; *swapped says if. */
TD_NODISCARD td_status td__store_compare_set(td__store *s, const char *key, const void *expect,
                                             size_t expect_nbytes, const void *value, size_t nbytes,
                                             td__deadline until, bool *swapped);
TD_NODISCARD td_status td__store_delete(td__store *s, const char *key, td__deadline until);
/* Everybody's value at once: waits until "prefix0" .. "prefix{n-1}" exist; values are concatenated,
 * each with its length before it (u32). One answer for a whole world. */
TD_NODISCARD td_status td__store_wait_all(td__store *s, const char *prefix, int n,
                                          td__deadline until, void **value, size_t *nbytes);

/* Called on another thread when what is waited for will not come: waits of this
 * client, now and from now on, end with this status and text; TD_OK allows them again. TD_EABORTED
 * ends all that is asked, not waits alone. */
void td__store_stop_waits(td__store *s, td_status st, const char *text);
/* TD_OK, or why waits end: for loops that wait for something else meanwhile. */
TD_NODISCARD td_status td__store_may_wait(td__store *s);

/* Membership. From now on this connection is rank `rank` of `group`. */
typedef void (*td__store_event)(void *user, const char *group, int rank, const char *what);
/* what: "dead" (connection lost), "left" (goodbye), or a text sent with td__store_tell. rank -1:
 * the store itself is gone ("dead"), and no more events will come. Called on the client's own
 * thread. */
TD_NODISCARD td_status td__store_join(td__store *s, const char *group, int rank,
                                      td__store_event event, void *user, td__deadline until);
/* To all other members of the group. Never blocks for long; errors are the event thread's
 * business. */
void td__store_tell(td__store *s, const char *group, int rank, const char *what);
/* When this returns before `until`, all that was told to this store's members before the call has
 * been heard. Asks for `key`, which need not exist. */
void td__store_settle(td__store *s, const char *key, td__deadline until);

#endif
