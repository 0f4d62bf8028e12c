/* device_impl.h -- what a device implements, and what all devices share. Only for src/device/. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_DEVICE_IMPL_H
#define TD_DEVICE_DEVICE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"

/* Arithmetic over blocks, as the functions of the same names in device.h. */
typedef struct td_arith_ops {
    void (*blend)(td_stream *s, const td__blend_op *op, int n, size_t begin, size_t count);
    void (*blended)(td_stream *s, const td__blend_op *op, size_t begin, size_t count, float *to);
    void (*scale)(td_stream *s, float *to, const float *from, float by, size_t n);
    void (*publish)(td_stream *s, float *to, const float *from, float by, size_t n);
    void (*update)(td_stream *s, td__update u, const td__optim_hyper *h, const td__optim_slice *x);
    void (*moments)(td_stream *s, const td__optim_hyper *h, const td__optim_slice *x,
                    double sums[2]);
    void (*squares)(td_stream *s, const float *x, size_t n, float scale, float clip,
                    double *by_chunk);
    void (*square_chunks)(td_stream *s, const float *x, const td__square_chunk *list, size_t n,
                          double *by_chunk);                            /* n > 0 */
    void (*copies)(td_stream *s, const td__copy_piece *list, size_t n); /* n > 0 */
} td_arith_ops;

/* Of devices whose kernels are the processor's (arith.c). */
extern const td_arith_ops td__arith_host;

typedef struct td_device_ops {
    const char *name;
    bool host_reads;
    /* An object that begins with a td_device. TD_EINVAL: there is none of that number. */
    td_status (*open)(int number, td_device **out);
    void (*close)(td_device *d);
    td_status (*alloc)(td_device *d, td_mem *m); /* kind and nbytes > 0 are set */
    void (*free)(td_mem *m);
    void (*thin)(const td_mem *m); /* (optional) */
    void (*discard)(const td_mem *m, size_t begin, size_t nbytes);
    td__device_counters (*count)(td_device *d);
    td_status (*stream)(td_device *d, td_stream **out); /* td__stream_init()ed */
    void (*stream_destroy)(td_stream *s);
    const td_arith_ops *arith;
    /* (optional) Memory of other processes on the same processor; kinds PEER and OPENED. */
    td_status (*handle)(const td_mem *m, td__mem_ticket *out);
    td_status (*open_peer)(td_mem *m, const td__mem_ticket *t);
    /* (optional) The processor's number; what libraries call a stream. */
    td_status (*processor)(const td_device *d, unsigned char out[16]);
    void *(*native)(const td_stream *s);
    /* (optional) Points in streams with times: n of them, each by its number. */
    td_status (*timer)(td_device *d, int n, void **out);
    void (*timer_destroy)(td_device *d, int n, void *timer);
    void (*timer_mark)(td_stream *s, void *timer, int i);
    uint64_t (*timer_ns)(td_device *d, void *timer, int from, int to);
    /* While a tape is being recorded, td__stream_launch() records; then these are not called. */
    void (*launch)(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes);
    /* (optional) A copy that is no kernel. */
    void (*copy)(td_stream *s, void *to, const void *from, size_t nbytes);
    /* (optional) Tapes of the device's own, made of what launches put into the stream. */
    td_status (*tape_begin)(td_stream *s);
    td_status (*tape_end)(td_stream *s, void **tape);
    void (*tape_play)(td_stream *s, void *tape);
    void (*tape_destroy)(td_stream *s, void *tape);
    void (*record)(td_stream *s, td_event *e);
    void (*wait)(td_stream *s, const td_event *e);
    bool (*done)(const td_event *e, td__deadline until); /* wait; false: time is up */
    /* What kernels of this device use for an address: its own view of its memory. */
    void *(*local)(const td_device *d, const void *at);
} td_device_ops;

#define TD_DEVICE(name) extern const td_device_ops td__##name##_device;
#include "device/devices.def"
#undef TD_DEVICE

struct td_device {
    const td_device_ops *ops;
    int holders; /* under the lock of the table of devices */
    td_stream *stream;
};

struct td_stream {
    td_device *device; /* which outlives it */
    bool at_once;      /* launch is a call, and then all is done */
    td_tape *tape;     /* being recorded */
    atomic_bool failed;
    pthread_mutex_t lock; /* of the following */
    td_status why;
    char text[768];
};

void td__stream_init(td_stream *s, td_device *d, bool at_once);
void td__stream_fini(td_stream *s);

/* tape.c: of streams whose device has no tapes of its own. */
void td__tape_record(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes);

#endif
