/* module.h -- the border between an agent and the PMIx module: one table of functions.
 *
 * The code that includes pmix.h is a module (libtandem_pmix.so), loaded by agents whose ranks are
 * programs of Open MPI, so that the program runs where there is no libpmix. Errors are texts.
 *
 * One server per process. Functions of the api are called by one thread; those of the world by
 * threads of the module, several at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_FOREIGN_PMIX_MODULE_H
#define TD_LAUNCH_FOREIGN_PMIX_MODULE_H

#include <stddef.h>
#include <stdint.h>

enum { TD_PMIX_ABI = 1, TD_PMIX_TEXT = 256 };

typedef struct td__pmix_host {
    const char *name;
    int first, count; /* its ranks */
} td__pmix_host;

/* Borrowed until stop. */
typedef struct td__pmix_world {
    const char *name, *dir; /* of the job; a folder of its own, for sockets */
    const td__pmix_host *hosts;
    int n_hosts, host, size; /* host: which one this is */
    void *user;
    /* All-gather over n hosts, given by rising numbers: what each has, end to end, in *out, which
     * is ended by `release`. Waits for the others; other than 0: they do not come. */
    int (*gather)(void *user, const char *name, const int *hosts, int n, const void *data,
                  size_t nbytes, void **out, size_t *out_nbytes);
    void (*release)(void *data);
    /* A rank has called MPI_Abort and waits to be killed. */
    void (*aborted)(void *user, int rank, int status);
} td__pmix_world;

/* All return 0, or -1 with one line in text[TD_PMIX_TEXT]. */
typedef struct td__pmix_api {
    uint32_t abi; /* TD_PMIX_ABI */
    int (*start)(const td__pmix_world *w, char *text);
    /* The variables of a rank of this host, "K=V" each. */
    int (*rank)(int rank, void (*add)(void *user, const char *variable), void *user, char *text);
    /* After gather has been made to return. */
    void (*stop)(void);
} td__pmix_api;

typedef const td__pmix_api *td__pmix_entry(void);
#define TD_PMIX_ENTRY "td__pmix_module"

#endif
