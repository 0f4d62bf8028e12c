/* far.h -- a device that is far from the host, for tests: what reads or writes its memory from the
 * host without asking dies at once, with or without sanitizers, on a machine without accelerators.
 *
 * Memory is one file in memory, mapped twice: the addresses that others hold cannot be read or
 * written; the stream threads work through a second, private mapping ("alias"). A system call that
 * is given such an address answers EFAULT. Each stream is a thread with a queue. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_FAR_FAR_H
#define TD_DEVICE_FAR_FAR_H

#include "device/device_impl.h"

/* A stream with its thread (far_stream.c). */
TD_NODISCARD td_status td__far_stream_create(td_device *d, td_stream **out);
void td__far_stream_destroy(td_stream *s);
void td__far_launch(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes);
void td__far_record(td_stream *s, td_event *e);
void td__far_wait(td_stream *s, const td_event *e);
bool td__far_done(const td_event *e, td__deadline until);

#endif
