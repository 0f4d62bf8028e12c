/* tape.c -- recorded sequences of work: a list of launches with their arguments, or what a device
 * with tapes of its own makes of them. */
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
    td_stream *stream;
    void *own; /* the device's; NULL: the list */
    taped *at;
    size_t n, room;
    bool failed; /* no memory while recording */
};

bool td__device_tapes(const td_device *d)
{
    return d->ops->tape_begin != NULL;
}

td_status td__tape_begin(td_stream *s)
{
    TD_ASSERT(!s->tape, "a tape is being recorded on this stream of device %s",
              s->device->ops->name);
    td_tape *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for a tape");
    t->stream = s;
    td_status st = s->device->ops->tape_begin ? s->device->ops->tape_begin(s) : TD_OK;
    if (st)
        td__free(t);
    else
        s->tape = t;
    return st;
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
    td_status st = t->failed ? TD_FAIL(TD_ENOMEM, "no memory for a tape") : TD_OK;
    if (s->device->ops->tape_end)
        st = s->device->ops->tape_end(s, &t->own);
    if (st) {
        td__tape_destroy(t);
        return st;
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
    if (t->own)
        s->device->ops->tape_play(s, t->own);
    else
        td__stream_launch(s, play, t, 0);
}

void td__tape_destroy(td_tape *t)
{
    if (!t)
        return;
    if (t->own)
        t->stream->device->ops->tape_destroy(t->stream, t->own);
    td__free(t->at);
    td__free(t);
}
