/* lazy_load.c -- finding functions of libraries that are loaded late (see lazy_load.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "lazy_load.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "command.h"

/* A library is opened once for each of its functions that is called, which counts its users; it
 * stays until the program ends. */
void *td__lazy_find(const int32_t *entry, const char *library)
{
    const char *name = (const char *)entry + entry[1];
    _Atomic(void *) *slot = (_Atomic(void *) *)(uintptr_t)((const char *)entry + entry[0]);
    void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    void *function = handle ? dlsym(handle, name) : NULL;

    if (!function) {
        const char *why = dlerror();
        fprintf(stderr, "tandem: %s is needed for this, and cannot be loaded: %s\n", library,
                why ? why : name);
        _exit(TD_EXIT_USAGE);
    }
    atomic_store_explicit(slot, function, memory_order_release);
    return function;
}
