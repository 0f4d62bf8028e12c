/* library.c -- see library.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/module.h"

static td_status find_functions(const td__library *l, td__held *to)
{
    for (int i = 0; i < l->n_functions; i++) {
        const td__library_function *f = &l->functions[i];
        void *at = dlsym(to->library, f->name);
        if (!at)
            return TD_FAIL(TD_ENOTSUP, "%s has no %s: it is too old", l->what, f->name);
        memcpy((char *)to + f->at, &at, sizeof at);
    }
    return l->open(to);
}

static void tell(td__library *l, const char *why)
{
    if (!l->told)
        TD_LOG(WARN, BACKEND, "%s: %s", why, l->without);
    l->told = true;
}

static void unload(const td__library *l, td__held *h)
{
    l->close(h);
    dlclose(h->library);
    td__free(h);
}

static td_status load(td__library *l, const void *device, td__held **out)
{
    char text[160];
    void *library = td__module_cuda(l->names, l->n_names);
    if (!library) {
        snprintf(text, sizeof text, "no %s on this machine (TANDEM_CUDA_LIBS names its folder)",
                 l->what);
        tell(l, text);
        return TD_OK;
    }
    td__held *h = td__calloc(1, l->nbytes);
    if (!h) {
        dlclose(library);
        return TD_FAIL(TD_ENOMEM, "no memory for %s", l->what);
    }
    h->library = library;
    if (find_functions(l, h)) { /* one that is broken is as good as none */
        tell(l, td_last_error());
        unload(l, h);
    } else {
        h->device = device;
        h->next = l->held;
        *out = l->held = h;
    }
    return TD_OK;
}

td_status td__library_get(td__library *l, const void *device, td__held **out)
{
    pthread_mutex_lock(&l->lock);
    td__held *h = l->held;
    while (h && h->device != device)
        h = h->next;
    td_status st = h ? TD_OK : load(l, device, &h);
    if (h)
        h->holders++;
    *out = h;
    pthread_mutex_unlock(&l->lock);
    return st;
}

void td__library_release(td__library *l, td__held *held)
{
    if (!held)
        return;
    pthread_mutex_lock(&l->lock);
    if (--held->holders == 0) {
        td__held **at = &l->held;
        while (*at != held)
            at = &(*at)->next;
        *at = held->next;
        unload(l, held);
    }
    pthread_mutex_unlock(&l->lock);
}

void td__library_look(const td__library *l, char out[32])
{
    void *library = td__module_cuda(l->names, l->n_names);
    size_t (*version)(void) = NULL;
    out[0] = 0;
    if (!library)
        return;
    *(void **)&version = dlsym(library, l->version);
    size_t v = version ? version() : 0;
    snprintf(out, 32, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    dlclose(library);
}

void td__library_version(td__library *l, char out[32])
{
    pthread_mutex_lock(&l->lock);
    snprintf(out, 32, "%s", l->held ? l->held->version : "");
    pthread_mutex_unlock(&l->lock);
}
