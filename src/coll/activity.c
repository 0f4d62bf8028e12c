/* activity.c -- what this rank is doing, for other threads to see without a lock.
 *
 * The last calls are kept in a ring of slots. A slot's version is odd while it is written; a reader
 * that saw it odd or changed reads again. All fields are atomic: stores are releases and loads
 * acquires, so that fields cannot move across the versions (no fences: thread sanitizer does not
 * know them); on x86 both are plain moves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>

#include "base/deadline.h"
#include "coll/comm_impl.h"
#include "coll/hang.h"

#define PUT(field, value) atomic_store_explicit(&(field), (value), memory_order_release)
#define GET(field) atomic_load_explicit(&(field), memory_order_acquire)

static void open_slot(td__comm_slot *s)
{
    PUT(s->version, atomic_load_explicit(&s->version, memory_order_relaxed) + 1);
}

static td__comm_slot *current(td_comm *c)
{
    return &c->slots[atomic_load_explicit(&c->slot, memory_order_relaxed) % TD_COMM_HISTORY];
}

void td__comm_enter(td_comm *c, const td__coll_call *call, const char *algo, uint32_t digest,
                    uint64_t now_ns)
{
    unsigned at = atomic_load_explicit(&c->slot, memory_order_relaxed) + 1;
    td__comm_slot *s = &c->slots[at % TD_COMM_HISTORY];

    open_slot(s);
    PUT(s->in_call, true);
    PUT(s->since_ns, now_ns);
    PUT(s->sequence, call->sequence);
    PUT(s->digest, digest);
    PUT(s->kind, (int)call->kind);
    PUT(s->count, call->count);
    PUT(s->dtype, (int)call->dtype);
    PUT(s->op, (int)call->op);
    PUT(s->root, call->root);
    PUT(s->algo, algo);
    PUT(s->n_waiting, 0);
    PUT(s->looks, 0);
    open_slot(s);
    PUT(c->slot, at);
    bool receives = call->kind == TD_COLL_RECV, message = receives || call->kind == TD_COLL_SEND;
    td__crossed_enter(c, message, 2 * call->root + receives, call->sequence);
}

void td__comm_leave(td_comm *c, uint64_t now_ns)
{
    td__comm_slot *s = current(c);

    open_slot(s);
    PUT(s->in_call, false);
    PUT(s->since_ns, now_ns);
    PUT(s->n_waiting, 0);
    open_slot(s);
}

void td__comm_reenter(td_comm *c, uint64_t now_ns)
{
    td__comm_slot *s = current(c);

    open_slot(s);
    PUT(s->in_call, true);
    PUT(s->since_ns, now_ns);
    open_slot(s);
}

void td__comm_waiting(td_comm *c, const td__mesh *m, const td__xfer *x, int n)
{
    td__comm_slot *s = current(c);
    int k = 0;

    open_slot(s);
    for (int i = 0; i < n; i++) {
        if (x[i].done)
            continue;
        int rank = td__coll_rank_of(&c->ctx, m, x[i].peer);
        bool known = false;
        for (int j = 0; j < k && j < TD_COMM_WAITING; j++)
            known = known || GET(s->waiting[j]) == rank;
        if (!known && k < TD_COMM_WAITING)
            PUT(s->waiting[k], rank);
        k += !known;
    }
    PUT(s->n_waiting, k);
    open_slot(s);
}

void td__comm_waiting_all(td_comm *c, const td__mesh *m)
{
    int n = 0;
    for (int r = 0; r < m->size; r++)
        if (r != m->rank)
            c->xfers[n++] = (td__xfer){.peer = r};
    td__comm_waiting(c, m, c->xfers, n);
}

void td__comm_looked(td_comm *c)
{
    td__comm_slot *s = current(c);

    PUT(s->looks, GET(s->looks) + 1);
}

static bool read_slot(const td__comm_slot *s, td__comm_activity *out)
{
    unsigned before = GET(s->version);

    *out = (td__comm_activity){
        .in_call = GET(s->in_call),
        .since_ns = GET(s->since_ns),
        .sequence = GET(s->sequence),
        .digest = GET(s->digest),
        .kind = (td__coll)GET(s->kind),
        .count = GET(s->count),
        .dtype = (td_dtype)GET(s->dtype),
        .op = (td_reduce_op)GET(s->op),
        .root = GET(s->root),
        .algo = GET(s->algo),
        .n_waiting = GET(s->n_waiting),
        .looks = GET(s->looks),
    };
    for (int i = 0; i < TD_COMM_WAITING; i++)
        out->waiting[i] = GET(s->waiting[i]);
    if (!out->algo)
        out->algo = "";
    return before % 2 == 0 && GET(s->version) == before;
}

/* Writers are quick, but one may have lost its core in the middle. False: it has not come back for
 * long, and *out may be of two calls. */
static bool read_slot_tries(const td__comm_slot *s, td__comm_activity *out)
{
    enum { SPINS = 1000, PATIENCE_MS = 100 };
    td__deadline until = 0;

    for (int i = 0; !read_slot(s, out); i++) {
        if (i < SPINS)
            continue;
        until = until ? until : td__deadline_in_ms(PATIENCE_MS);
        if (td__deadline_passed(until))
            return false;
        sched_yield();
    }
    return true;
}

void td__comm_activity_get(const td_comm *c, td__comm_activity *out)
{
    (void)read_slot_tries(&c->slots[GET(c->slot) % TD_COMM_HISTORY], out);
}

static bool is_p2p(td__coll kind)
{
    return kind == TD_COLL_SEND || kind == TD_COLL_RECV;
}

bool td__comm_history(const td_comm *c, uint64_t sequence, td__comm_activity *out)
{
    for (int i = 0; i < TD_COMM_HISTORY; i++) {
        if (read_slot_tries(&c->slots[i], out) && out->sequence && out->sequence == sequence &&
            !is_p2p(out->kind))
            return true;
    }
    return false;
}

bool td__comm_history_p2p(const td_comm *c, td__coll kind, int peer, uint64_t sequence,
                          td__comm_activity *out)
{
    for (int i = 0; i < TD_COMM_HISTORY; i++) {
        if (read_slot_tries(&c->slots[i], out) && out->sequence && out->sequence == sequence &&
            out->kind == kind && out->root == peer)
            return true;
    }
    return false;
}

char *td__comm_activity_text(const td__comm_activity *a, char *buf, size_t nbytes)
{
    char with[80] = "", data[48] = "";
    const char *colon = a->algo[0] ? ", " : "";

    if (!a->sequence) {
        snprintf(buf, nbytes, "no call yet");
        return buf;
    }
    if (a->kind == TD_COLL_ALLREDUCE || a->kind == TD_COLL_REDUCE_SCATTER)
        snprintf(with, sizeof with, " %s", td_reduce_name(a->op));
    else if (a->kind == TD_COLL_REDUCE)
        snprintf(with, sizeof with, " %s, root %d", td_reduce_name(a->op), a->root);
    else if (a->kind == TD_COLL_BROADCAST || a->kind == TD_COLL_GATHER ||
             a->kind == TD_COLL_SCATTER)
        snprintf(with, sizeof with, ", root %d", a->root);
    else if (a->kind == TD_COLL_SEND)
        snprintf(with, sizeof with, " to rank %d", a->root);
    else if (a->kind == TD_COLL_RECV)
        snprintf(with, sizeof with, " from rank %d", a->root);
    if (a->kind == TD_COLL_BARRIER)
        colon = "";
    else
        snprintf(data, sizeof data, "%zu %s", a->count, td_dtype_name(a->dtype));
    snprintf(buf, nbytes, "%s #%llu (%s%s%s%s)", td__coll_name(a->kind),
             (unsigned long long)a->sequence, data, with, colon, a->algo);
    return buf;
}

/* ---- what the program says ---- */

void td__comm_says(td_comm *c, unsigned phase, uint64_t step, const char *what)
{
    if (!c)
        return;
    td__comm_note *n = &c->note;
    bool news =
        !GET(n->since_ns) || GET(n->phase) != phase || GET(n->step) != step || GET(n->what) != what;
    PUT(n->phase, phase);
    PUT(n->step, step);
    PUT(n->what, what);
    if (news)
        PUT(n->since_ns, td__clock_ns());
}

void td__comm_about(td_comm *c, int bucket, const char *tensor)
{
    if (!c)
        return;
    PUT(c->note.tensor, tensor);
    PUT(c->note.bucket, bucket);
}

char *td__comm_note_text(const td_comm *c, char *buf, size_t nbytes)
{
    const td__comm_note *n = &c->note;
    uint64_t since = GET(n->since_ns);
    const char *tensor = GET(n->tensor);
    int bucket = GET(n->bucket);
    char about[64] = "";
    if (bucket)
        snprintf(about, sizeof about, "bucket %d%s%s", bucket, tensor ? " from " : "",
                 tensor ? tensor : "");
    if (!since) {
        snprintf(buf, nbytes, "%s", about);
        return buf;
    }
    return td__doing_text(&(td__doing){.phase = GET(n->phase),
                                       .what = GET(n->what),
                                       .about = about,
                                       .step = GET(n->step),
                                       .seconds = 1e-9 * (double)(td__clock_ns() - since)},
                          buf, nbytes);
}

bool td__comm_now(const td_comm *c, char *out, size_t max)
{
    td__comm_activity a;
    if (!c)
        return false;
    td__comm_activity_get(c, &a);
    if (!a.in_call)
        return false;
    const char *tensor = GET(c->note.tensor);
    int bucket = GET(c->note.bucket), n = snprintf(out, max, "%s", td__coll_name(a.kind));
    if (bucket && n > 0 && (size_t)n < max)
        snprintf(out + n, max - (size_t)n, ", bucket %d%s%s", bucket, tensor ? " from " : "",
                 tensor ? tensor : "");
    return true;
}
