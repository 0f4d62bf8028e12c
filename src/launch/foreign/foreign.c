/* foreign.c -- see foreign.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "launch/foreign/foreign_impl.h"

static const struct {
    const char *name;
    const td__foreign_ops *ops;
} ALL[] = {
#define X(name) {#name, &td__foreign_##name},
#include "launch/foreign/foreign.def"
#undef X
};
enum { N = sizeof ALL / sizeof ALL[0] };

static const td__foreign_ops *find(const char *name)
{
    for (size_t i = 0; i < N; i++)
        if (!strcmp(ALL[i].name, name))
            return ALL[i].ops;
    return NULL;
}

bool td__foreign_known(const char *name)
{
    return find(name) != NULL;
}

const char *td__foreign_names(char *out, size_t max)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < N && n < max; i++)
        n += (size_t)snprintf(out + n, max - n, "%s%s", i ? ", " : "", ALL[i].name);
    return out;
}

td_status td__foreign_check(const char *name, const td__foreign_http *http)
{
    const td__foreign_ops *ops = find(name);
    if (!ops)
        return TD_FAIL(TD_EINVAL, "there is no server for programs of '%s'", name);
    return ops->check ? ops->check(http) : TD_OK;
}

td_status td__foreign_create(const td__agent_spec *s, const td__rank_plan *plan, td__foreign **out)
{
    *out = NULL;
    if (!s->framework)
        return TD_OK;
    const td__foreign_ops *ops = find(s->framework);
    if (!ops)
        return TD_FAIL(TD_EPROTO, "there is no server for programs of '%s' here", s->framework);
    td__foreign *f = td__calloc(1, sizeof *f);
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory for a server of %s", s->framework);
    int n = td__agent_spec_host(s)->count;
    *f = (td__foreign){.ops = ops, .s = s, .plan = plan};
    f->abort_status = td__calloc((size_t)n, sizeof *f->abort_status);
    f->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int i = 0; f->abort_status && i < n; i++)
        atomic_init(&f->abort_status[i], -1);
    td_status st = !f->abort_status ? TD_FAIL(TD_ENOMEM, "no memory for %d ranks", n)
                   : f->abort_fd < 0
                       ? TD_FAIL(TD_EIO, "cannot make a descriptor: %s", strerror(errno))
                       : td__exchange_init(&f->exchange, s, plan->store);
    if (!st)
        st = ops->create(f);
    if (st) {
        td__foreign_destroy(f);
        return st;
    }
    *out = f;
    return TD_OK;
}

void td__foreign_destroy(td__foreign *f)
{
    if (!f)
        return;
    td__exchange_stop(&f->exchange); /* a server that waits for other hosts waits no longer */
    if (f->server)
        f->ops->destroy(f);
    td__exchange_fini(&f->exchange);
    if (f->abort_fd >= 0)
        close(f->abort_fd);
    td__free(f->abort_status);
    td__free(f);
}

td_status td__foreign_rank(td__foreign *f, int rank, td__texts *env, int *fd)
{
    *fd = -1;
    return f ? f->ops->rank(f, rank, env, fd) : TD_OK;
}

/* Statuses of 0 and above 255 are none that a process can end with. */
void td__foreign_abort(td__foreign *f, int local, int status)
{
    atomic_store(&f->abort_status[local], status & 255 ? status & 255 : 1);
    ssize_t ignored = write(f->abort_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)ignored;
}

int td__foreign_fd(const td__foreign *f)
{
    return f ? f->abort_fd : -1;
}

void td__foreign_hear(td__foreign *f)
{
    uint64_t n;
    ssize_t ignored = read(f->abort_fd, &n, sizeof n);
    (void)ignored;
}

int td__foreign_aborted(const td__foreign *f, int rank)
{
    if (!f)
        return -1;
    return atomic_load(&f->abort_status[rank - td__agent_spec_host(f->s)->first]);
}
