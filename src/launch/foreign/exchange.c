/* exchange.c -- see exchange.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/foreign/exchange.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

td_status td__exchange_init(td__exchange *x, const td__agent_spec *s, const char *store)
{
    x->host = s->index;
    x->n_hosts = s->hosts.n;
    return td__store_connect(store, &s->secret, &(td__store_opts){.tls_dir = td__agent_spec_tls(s)},
                             td__deadline_in_ms(TD_EXCHANGE_ASK_MS), &x->store);
}

void td__exchange_stop(td__exchange *x)
{
    if (!x->store)
        return;
    td__store_stop_waits(x->store, TD_EABORTED, "the ranks are ended");
    td__store_hurry(x->store);
}

void td__exchange_fini(td__exchange *x)
{
    td__store_close(x->store);
    x->store = NULL;
}

/* Values with their lengths (u32) before them, in place: end to end without. */
static td_status strip_lengths(char *data, size_t nbytes, int n, size_t *out)
{
    size_t at = 0, used = 0;
    for (int i = 0; i < n; i++) {
        uint32_t length;
        if (nbytes - at < sizeof length)
            return TD_FAIL(TD_EPROTO, "the store gave %d values of %d", i, n);
        memcpy(&length, data + at, sizeof length);
        at += sizeof length;
        if (length > nbytes - at)
            return TD_FAIL(TD_EPROTO, "the store gave a value that is cut off");
        memmove(data + used, data + at, length);
        at += length;
        used += length;
    }
    *out = used;
    return TD_OK;
}

static td_status copy(const void *data, size_t nbytes, void **out, size_t *out_nbytes)
{
    *out = td__malloc(nbytes + 1);
    *out_nbytes = nbytes;
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of the ranks", nbytes);
    memcpy(*out, nbytes ? data : "", nbytes);
    return TD_OK;
}

td_status td__exchange_all(td__exchange *x, const char *name, const int *hosts, int n,
                           const void *data, size_t nbytes, void **out, size_t *out_nbytes)
{
    char prefix[200], key[220];
    int place = x->host;
    *out = NULL;
    if (!hosts)
        n = x->n_hosts;
    for (int i = 0; hosts && i < n; i++)
        if (hosts[i] == x->host)
            place = i;
    if (n == 1)
        return copy(data, nbytes, out, out_nbytes);
    if (snprintf(prefix, sizeof prefix, "foreign/all/%s/", name) >= (int)sizeof prefix)
        return TD_FAIL(TD_EINVAL, "the name of an exchange is too long: %.60s", name);
    snprintf(key, sizeof key, "%s%d", prefix, place);
    TD_TRY(td__store_set(x->store, key, data, nbytes, td__deadline_in_ms(TD_EXCHANGE_ASK_MS)));
    TD_TRY(td__store_wait_all(x->store, prefix, n, TD_DEADLINE_NEVER, out, out_nbytes));
    td_status st = strip_lengths(*out, *out_nbytes, n, out_nbytes);
    if (st) {
        td__free(*out);
        *out = NULL;
    }
    return st;
}
