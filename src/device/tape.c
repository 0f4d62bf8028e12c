/* tape.c -- recorded sequences of work: a list of launches with their arguments. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "device/device_impl.h"

typedef struct taped {
    td__stream_fn *fn;
    const void *by_reference; /* NULL: args */
    _Alignas(16) unsigned char args[TD__LAUNCH_ARGS];
} taped;

struct td_tape {
    taped *at;
    size_t n, room;
    bool failed; /* no memory while recording */
};

td_status td__tape_begin(td_stream *s)
{
    TD_ASSERT(!s->tape, "a tape is being recorded on this stream of device %s",
              s->device->ops->name);
    s->tape = td__calloc(1, sizeof *s->tape);
    return s->tape ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a tape");
}

void td__tape_record(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes)
{
    td_tape *t = s->tape;
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        taped *at = td__realloc(t->at, room * sizeof *at);
        t->failed = t->failed || !at;
        if (!at)
            return;
        t->at = at;
        t->room = room;
    }
    taped *to = &t->at[t->n++];
    to->fn = fn;
    to->by_reference = nbytes ? NULL : args;
    if (nbytes)
        memcpy(to->args, args, nbytes);
}

td_status td__tape_end(td_stream *s, td_tape **out)
{
    td_tape *t = s->tape;
    TD_ASSERT(t, "no tape is being recorded on this stream of device %s", s->device->ops->name);
    s->tape = NULL;
    *out = NULL;
    if (t->failed) {
        td__tape_destroy(t);
        return TD_FAIL(TD_ENOMEM, "no memory for a tape");
    }
    *out = t;
    return TD_OK;
}

static void play(const void *args)
{
    const td_tape *t = args;
    for (size_t i = 0; i < t->n; i++)
        t->at[i].fn(t->at[i].by_reference ? t->at[i].by_reference : t->at[i].args);
}

void td__tape_play(td_stream *s, const td_tape *t)
{
    td__stream_launch(s, play, t, 0);
}

void td__tape_destroy(td_tape *t)
{
    if (!t)
        return;
    td__free(t->at);
    td__free(t);
}
