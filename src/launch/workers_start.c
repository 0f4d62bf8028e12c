/* workers_start.c -- starting a process of a launch: its environment, its pipes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "launch/foreign/foreign.h"
#include "launch/workers_impl.h"

extern char **environ;

typedef td__worker worker;

/* An elastic process has no rank of its own (nor may it inherit one): it asks its agent. Its
 * number among those of this host says which of several GPUs it takes where it does not wait for a
 * seat (coll/members.h). */
static void add_env(const td__workers *w, const worker *k, td__texts *t)
{
    const td__agent_spec *s = w->s;
    if (w->plan) {
        td__rank_env(w->plan, td__worker_rank(w, k), t);
    } else {
        td__texts_add(t, "%s=", td__env_name(TD_ENV_RANK));
        td__texts_add(t, "%s=%d", td__env_name(TD_ENV_LOCAL_RANK), k->slot);
    }
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_AGENT), w->socket);
    td__texts_add(t, "%s=%u", td__env_name(TD_ENV_PROC), k->proc);
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_SECRET_FILE), s->secret_file);
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_ADDRESS), s->address);
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_JOB), s->job);
    if (s->tls_file[0])
        td__texts_add(t, "%s=%s", td__env_name(TD_ENV_TLS_DIR), s->tls_file);
    for (int i = 0; s->env[i]; i++)
        td__texts_add(t, "%s", s->env[i]);
}

static int next_slot(const td__workers *w)
{
    if (w->plan)
        return (int)w->n_started;
    for (int slot = 0;; slot++) {
        bool taken = false;
        for (int i = 0; i < w->max; i++)
            taken |= w->all[i].used && !w->all[i].done && w->all[i].slot == slot;
        if (!taken)
            return slot;
    }
}

td_status td__worker_start(td__workers *w, uint64_t now)
{
    worker *k = w->all;
    while (k < w->all + w->max && k->used)
        k++;
    if (k == w->all + w->max)
        return TD_FAIL(TD_ENOMEM, "an agent runs at most %d processes", w->max);
    *k = (worker){.slot = next_slot(w), .link = {.conn = {.fd = -1}}, .heard_ns = now};
    w->n_started++;
    k->proc = w->plan ? w->n_started : td__ms_proc(w->s->index, w->n_started);
    td__texts t = {0};
    int keep = -1;
    td_status st =
        w->plan ? td__foreign_rank(w->plan->foreign, td__worker_rank(w, k), &t, &keep) : TD_OK;
    add_env(w, k, &t);
    char **env = st ? NULL : td__rank_environ(environ, &t);
    td__spawn_opts o = {.env = env,
                        .share_out = w->s->terminal,
                        .keep = keep >= 0 ? keep : 0,
                        .death_signal = SIGKILL,
                        .files = &w->s->files};
    if (!st && !env)
        st = TD_FAIL(TD_ENOMEM, "no memory for the environment of a process");
    if (!st)
        st = td__lines_init(&k->out, &k->child.out, TD_MSG_OUT);
    if (!st)
        st = td__lines_init(&k->err, &k->child.err, TD_MSG_ERR);
    if (!st)
        st = td__spawn(w->s->argv, &o, &k->child);
    if (keep >= 0)
        close(keep);
    td__free(env);
    td__texts_fini(&t);
    if (st) {
        td__lines_fini(&k->out);
        td__lines_fini(&k->err);
        return st;
    }
    k->used = true;
    if (k->child.out >= 0)
        fcntl(k->child.out, F_SETFL, O_NONBLOCK);
    fcntl(k->child.err, F_SETFL, O_NONBLOCK);
    w->n_running++;
    return TD_OK;
}
