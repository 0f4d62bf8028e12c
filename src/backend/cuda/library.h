/* library.h -- the libraries of CUDA: where they are found, and how a process holds one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_LIBRARY_H
#define TD_BACKEND_CUDA_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "tandem/status.h"

/* A function of a library and where its address goes in a struct. */
typedef struct td__library_function {
    const char *name;
    size_t at;
} td__library_function;

/* The beginning of every library that is held: functions and a handle of its own follow. */
typedef struct td__held {
    void *library;
    const void *device; /* its handle is of */
    struct td__held *next;
    int holders;
    char version[32]; /* "13.1.0" */
} td__held;

/* A library that is loaded when it is first asked for, with a handle for each device, and let go of
 * by the last who holds it. It is the first of the n names that is in a folder of TANDEM_CUDA_LIBS,
 * on the loader's path or in /usr/local/cuda. */
typedef struct td__library {
    const char *what;         /* "cuDNN 9" */
    const char *without;      /* what happens where there is none */
    const char *const *names; /* of its file, best first */
    int n_names;
    const td__library_function *functions;
    int n_functions;
    size_t nbytes;                  /* of the struct that begins with a td__held */
    const char *version;            /* its function, size_t (void): 130100 for "13.1.0" */
    td_status (*open)(td__held *l); /* after its functions are there; fills version */
    void (*close)(td__held *l);     /* also after open failed */
    pthread_mutex_t lock;           /* of the following, and of `holders` */
    td__held *held;                 /* of all devices */
    bool told;
} td__library;

/* The library for a device, which the calling thread works with, with one holder more; NULL if it
 * is not on this machine or does not work, which is said once in the log. */
TD_NODISCARD td_status td__library_get(td__library *l, const void *device, td__held **out);
void td__library_release(td__library *l, td__held *held); /* NULL is allowed */
/* The version of the library that would be loaded; "" if there is none. */
void td__library_look(const td__library *l, char out[32]);
/* The version of a library that somebody holds, else "". */
void td__library_version(td__library *l, char out[32]);

#endif
