/* api.c -- the gRPC side as a whole: its server, who may call what, its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/grpc/api.h"

#include <stdio.h>

#include "base/fail.h"
#include "service/config.h"
#include "service/grpc/api_impl.h"

enum { DEFAULT_RATE = 1000 }; /* calls per second: workers of a host report through one address */

extern const unsigned char td__service_descriptors[]; /* cmake/service.cmake */
extern const size_t td__service_descriptors_bytes;

static td__grpc_code authorize(void *arg, td__call *c, char *why, size_t why_bytes)
{
    td__grpc_api *a = arg;
    td__scope needed = (td__scope)td__call_method(c)->tag;
    td__identity who;
    struct sockaddr_storage address;

    if (td__service_failed(a->o.service)) {
        snprintf(why, why_bytes, "the service is stopping: its store failed");
        return TD_GRPC_UNAVAILABLE;
    }
    if (a->rates && td__call_address(c, &address) &&
        !td__rates_take(a->rates, (struct sockaddr *)&address, td__clock_ns())) {
        snprintf(why, why_bytes, "too many requests: the limit is %u per second", a->rate);
        return TD_GRPC_RESOURCE_EXHAUSTED;
    }
    if (needed == TD_SCOPE_NONE)
        return TD_GRPC_OK;
    who = td__tokens_identify(a->o.tokens, td__call_metadata(c, "authorization"));
    td__call_set_user(c, who.user, who.scope);
    if (who.scope == TD_SCOPE_NONE) {
        snprintf(why, why_bytes, "metadata authorization: Bearer TOKEN is missing or wrong");
        return TD_GRPC_UNAUTHENTICATED;
    }
    if (who.scope < needed) {
        snprintf(why, why_bytes, "%s needs a token with scope %s, this one has %s",
                 td__call_method(c)->name, td__scope_name(needed), td__scope_name(who.scope));
        return TD_GRPC_PERMISSION_DENIED;
    }
    return TD_GRPC_OK;
}

td__caller td__grpc_caller(const td__call *c)
{
    return (td__caller){.user = td__call_user(c), .admin = td__call_rights(c) >= TD_SCOPE_ADMIN};
}

bool td__grpc_refused(td__call *c, td__answer a)
{
    if (a == TD_ANSWER_OK)
        return false;
    td__call_finish(c, (td__grpc_code)td__answer_grpc(a), "%s", td_last_error());
    return true;
}

static td_status listen_all(td__grpc_api *a, const td__service_config *c)
{
    a->addresses = td__calloc((size_t)c->n_grpc_listen + 1, sizeof *a->addresses);
    if (!a->addresses)
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    for (int i = 0; i < c->n_grpc_listen; i++) {
        td__grpc_listener at = {.address = c->grpc_listen[i]};

        if (c->tls_cert[0]) {
            at.cert_file = c->tls_cert;
            at.key_file = c->tls_key;
        }
        TD_TRY(td__grpc_listen(a->server, &at, a->addresses[i]));
        a->n_addresses++;
    }
    return TD_OK;
}

static void observe(void *arg, const td__call *c, td__grpc_code code, uint64_t ns)
{
    td__grpc_api *a = arg;
    const td__grpc_method *m = td__call_method(c);

    if ((unsigned)code < TD__GRPC_CODES)
        a->counters.ended[code]++;
    if (m && m->kind == TD_GRPC_UNARY)
        a->counters.seconds += (double)ns / 1e9;
}

void td__grpc_api_counters(const td__grpc_api *a, td__grpc_counters *out)
{
    *out = a->counters;
    td__grpc_stats_get(a->server, &out->now);
}

td_status td__grpc_api_create(const td__grpc_api_opts *o, td__grpc_api **out)
{
    const td__service_config *c = td__service_config_of(o->service);
    const td__grpc_service *const services[] = {&td__book_training, &td__book_data, &td__book_runs,
                                                &td__book_prediction, &td__tandem_v1};
    td__grpc_api *a = td__calloc(1, sizeof *a);
    td__grpc_opts opts = {.limits = {.max_message = (size_t)c->max_request,
                                     .max_streams = (unsigned)c->max_streams,
                                     .per_address = (unsigned)c->per_address,
                                     .idle_ms = (unsigned)c->idle_timeout_s * 1000},
                          .authorize = authorize,
                          .observe = observe,
                          .arg = a};
    td_status st;

    *out = NULL;
    if (!a)
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    a->o = *o;
    TD_TRY_OR(st, fail, td__grpc_create(td__service_loop(o->service), &opts, &a->server));
    for (int i = 0; i < TD_LEN(services); i++)
        TD_TRY_OR(st, fail, td__grpc_add(a->server, services[i], a));
    TD_TRY_OR(st, fail, td__health_create(a->server, &a->health));
    TD_TRY_OR(st, fail, td__reflection_create(a->server, &a->reflection));
    TD_TRY_OR(
        st, fail,
        td__reflection_add(a->reflection, td__service_descriptors, td__service_descriptors_bytes));
    /* Without tokens nobody but this machine is served: no limit unless one is asked for. */
    a->rate = c->rate_limit                     ? (unsigned)c->rate_limit
              : td__tokens_count(o->tokens) > 0 ? DEFAULT_RATE
                                                : 0;
    if (a->rate)
        TD_TRY_OR(st, fail, td__rates_create(a->rate, 2 * a->rate, &a->rates));
    TD_TRY_OR(st, fail, listen_all(a, c));
    if (a->n_addresses)
        td__service_listens(o->service, a->addresses[0]);
    *out = a;
    return TD_OK;
fail:
    td__grpc_api_destroy(a);
    return st;
}

void td__grpc_api_destroy(td__grpc_api *a)
{
    if (!a)
        return;
    atomic_store(&a->stopping, true);
    td__work_threads_destroy(a->workers); /* answers what it has */
    td__grpc_destroy(a->server);
    td__health_destroy(a->health);
    td__reflection_destroy(a->reflection);
    td__rates_destroy(a->rates);
    td__free(a->addresses);
    td__free(a);
}

const char *td__grpc_api_address(const td__grpc_api *a, int i)
{
    return i < a->n_addresses ? a->addresses[i] : NULL;
}

void td__grpc_api_shutdown(td__grpc_api *a, td__deadline until, void (*done)(void *arg), void *arg)
{
    td__health_set(a->health, false);
    td__grpc_shutdown(a->server, until, done, arg);
}
