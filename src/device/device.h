/* device.h -- one processor with its memory: blocks of memory, streams of work, events, tapes, and
 * arithmetic over blocks.
 *
 * Words: the host is the thread that calls these functions. A stream is a queue of work that is
 * carried out in order. An event is a point in a stream. A tape is a recorded sequence of work that
 * can be played again. A kernel is a function that a stream carries out.
 *
 * Memory    The host may read and write pinned memory of every device. Memory of other kinds it may
 *           touch only where td__device_host_reads() says so; elsewhere numbers move by copies, or
 *           through td__mem_map(), which costs nothing where the host may read.
 * Order     Work of one stream is in order; between streams an event makes it so. The host sees
 *           results after it has waited for an event. On `host` work is carried out at once by the
 *           calling thread, in the time of a function call.
 * Failure   Operations of a stream return nothing. The first failure since the last wait is kept by
 *           the stream and returned by the next td__event_sync() or td__stream_sync().
 * Threads   A device and its memory may be used by all threads, and so may a stream; a tape is
 *           recorded by one thread while nobody else uses the stream.
 *
 * A device is one folder, which implements td_device_ops (device_impl.h), and one line in
 * devices.def. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_DEVICE_H
#define TD_DEVICE_DEVICE_H

#include "base/deadline.h"
#include "device/kernels/kernels.h"
#include "tandem/status.h"

typedef struct td_device td_device;
typedef struct td_stream td_stream;
typedef struct td_tape td_tape;

/* ---- Devices --------------------------------------------------------------------------------- */

/* The process has one device of each name: it is made by the first open, and ends with the last
 * release. "cuda:1" is the second device of its kind, "cuda" and "cuda:0" the first. */
TD_NODISCARD td_status td__device_open(const char *name, td_device **out);
td_device *td__device_retain(td_device *d);
void td__device_release(td_device *d); /* NULL is allowed */
const char *td__device_name(const td_device *d);
/* May the host touch all memory of the device? */
bool td__device_host_reads(const td_device *d);
/* An address of the device's memory as its own kernels use it; another address as it is. */
void *td__device_local(const td_device *d, const void *at);
/* The processor's own number, which all processes see alike. TD_ENOTSUP: it has none. */
TD_NODISCARD td_status td__device_processor(const td_device *d, unsigned char out[16]);
/* A stream of the device's own, for work that no other stream is there for. */
td_stream *td__device_stream(td_device *d);

typedef struct td__device_counters {
    uint64_t requests, reused; /* blocks asked for; of them blocks that were idle */
    uint64_t released;         /* idle blocks given back to the system */
    size_t used, idle, peak;   /* bytes: in use; kept for the next request; the most of both */
} td__device_counters;
td__device_counters td__device_count(td_device *d);

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef enum td_mem_kind {
    TD_MEM_OWN,    /* the device's */
    TD_MEM_PINNED, /* the host's, which the device reaches: for copies */
    TD_MEM_PEER,   /* the device's, which other processes may open: td__mem_handle() */
    TD_MEM_OPENED, /* such memory of another process: td__mem_open() */
    TD_MEM_LENT,   /* such memory of another device of this process: td__mem_open() */
    TD_MEM_KIND_COUNT
} td_mem_kind;

typedef struct td_mem {
    td_device *device; /* retained; NULL: none */
    td_mem_kind kind;
    void *at; /* aligned to 64 bytes */
    size_t nbytes;
} td_mem;

/* Zero-filled. */
TD_NODISCARD td_status td__mem_alloc(td_device *d, td_mem_kind kind, size_t nbytes, td_mem *out);
void td__mem_free(td_mem *m); /* nothing is under way on it; zeroed: nothing to do */
/* Peer memory as bytes to send to another process on the same host, or to another thread of this
 * one, which may open it if it works with the same processor or with one that reaches it.
 * TD_ENOTSUP: the device has no such memory, or does not reach it. What is opened is freed by
 * td__mem_free(), and before the owner frees it. */
typedef struct td__mem_ticket {
    unsigned char processor[16], process[16]; /* process: that has it, at the address */
    unsigned char address[sizeof(void *)], handle[64];
} td__mem_ticket;
TD_NODISCARD td_status td__mem_handle(const td_mem *m, td__mem_ticket *out);
TD_NODISCARD td_status td__mem_open(td_device *d, const td__mem_ticket *t, size_t nbytes,
                                    td_mem *out);
/* Own memory of which parts will be discarded: let it be made of small pages from now on.
 * Zeroed: nothing to do. */
void td__mem_thin(const td_mem *m);
/* Whole pages in bytes [begin, begin + nbytes) of the device's memory go back to the system. */
void td__mem_discard(const td_mem *m, size_t begin, size_t nbytes);

/* Copies that the host waits for. */
TD_NODISCARD td_status td__mem_read(td_device *d, void *to, const void *from, size_t nbytes);
TD_NODISCARD td_status td__mem_write(td_device *d, void *to, const void *from, size_t nbytes);

/* Memory as the host sees it: the memory itself where the host may read it, else a copy, written
 * back by unmap if it was mapped for writing. */
typedef enum td__map_use { TD_MAP_READ = 1, TD_MAP_WRITE = 2, TD_MAP_BOTH = 3 } td__map_use;
typedef struct td__mapping {
    void *at;
    td_device *device;
    void *of;
    size_t nbytes;
    td__map_use use;
} td__mapping;
/* WRITE alone: all bytes will be written, and what they were before is not read. */
TD_NODISCARD td_status td__mem_map(td_device *d, const void *of, size_t nbytes, td__map_use use,
                                   td__mapping *out);
TD_NODISCARD td_status td__mem_unmap(td__mapping *m);
/* Instead: what was written is not wanted. A zeroed map is allowed. */
void td__mem_map_drop(td__mapping *m);

/* ---- Streams, events, tapes ------------------------------------------------------------------ */

TD_NODISCARD td_status td__stream_create(td_device *d, td_stream **out);
void td__stream_destroy(td_stream *s); /* after its work is done; NULL is allowed */
/* The stream as libraries of its processor know it: a CUstream; NULL: it is none of those. */
void *td__stream_native(const td_stream *s);

/* Carry out fn(args) in the floating-point mode of the calling thread. nbytes > 0: args are copied
 * (at most TD__LAUNCH_ARGS); 0: they stay valid until it is done. On a GPU fn is called at once and
 * puts kernels into the stream; it touches no memory of the device, and whatever else it does is
 * not part of a tape. */
typedef void td__stream_fn(const void *args);
enum { TD__LAUNCH_ARGS = 192 };
void td__stream_launch(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes);
/* Both sides stay valid until it is done; either may be the host's. */
void td__stream_copy(td_stream *s, void *to, const void *from, size_t nbytes);
/* n copies, in no order among themselves, as one launch. The list and what it names is the device's
 * memory or pinned, and stays as it is until they are done. */
typedef struct td__copy_piece {
    void *to;
    const void *from;
    size_t nbytes;
} td__copy_piece;
void td__stream_copies(td_stream *s, const td__copy_piece *list, size_t n);
/* A kernel of the stream failed. The first failure is kept. */
void td__stream_fail(td_stream *s, td_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

typedef struct td_event {
    td_stream *stream;
    uint64_t at; /* work of the stream up to here */
} td_event;
void td__event_record(td_stream *s, td_event *e);
void td__event_wait(td_stream *s, const td_event *e); /* the stream waits, not the host */
/* The host waits; then the first failure. TD_ETIMEDOUT: it was not done by then. */
TD_NODISCARD td_status td__event_sync(const td_event *e, td__deadline until);
/* All work so far, within TD__DEVICE_TIMEOUT_MS. */
TD_NODISCARD td_status td__stream_sync(td_stream *s);
/* The same; failures are left to the next sync. */
void td__stream_drain(td_stream *s);
enum { TD__DEVICE_TIMEOUT_MS = 600000 };
/* How long the calling thread has waited for events, in all. */
uint64_t td__stream_waited_ns(void);

/* The device's own clock: n points in streams, and the time between two of them once the host has
 * waited for both. NULL with TD_OK: the device has none, and the host's is to be used. */
typedef struct td__timer td__timer;
TD_NODISCARD td_status td__timer_create(td_device *d, int n, td__timer **out);
void td__timer_destroy(td__timer *t); /* NULL is allowed */
void td__timer_mark(td__timer *t, td_stream *s, int i);
uint64_t td__timer_ns(const td__timer *t, int from, int to);

/* Is a tape played in less time than its work takes to launch? */
bool td__device_tapes(const td_device *d);
/* Between begin and end work is recorded instead of carried out. Waits for events are not. */
TD_NODISCARD td_status td__tape_begin(td_stream *s);
TD_NODISCARD td_status td__tape_end(td_stream *s, td_tape **out);
void td__tape_play(td_stream *s, const td_tape *t);
void td__tape_destroy(td_tape *t); /* after it was played; NULL is allowed */

/* ---- Arithmetic over blocks ------------------------------------------------------------------
 *
 * Element by element: the same bits for any slicing, on every device. Arrays are the device's, or
 * the host's that it reaches. What pointers point to stays valid until it is done; hyper and slice
 * are copied. */

/* dst = a dst + b src */
typedef struct td__blend_op {
    float *dst;
    const float *src;
    float a, b;
} td__blend_op;

/* n of them, one after the other, each over elements [begin, begin + count). */
void td__stream_blend(td_stream *s, const td__blend_op *op, int n, size_t begin, size_t count);
/* The same at once, for arrays of the host. */
void td__host_blend(const td__blend_op *op, int n, size_t begin, size_t count);
/* One of them, with the result in to[0..count) and dst as it was. */
void td__stream_blended(td_stream *s, const td__blend_op *op, size_t begin, size_t count,
                        float *to);
/* to = by from */
void td__stream_scale(td_stream *s, float *to, const float *from, float by, size_t n);
/* The same for memory of the host that other processes will read, past its caches. */
void td__stream_publish(td_stream *s, float *to, const float *from, float by, size_t n);

/* Optimizers. */
typedef enum td__update {
#define TD_UPDATE(NAME, kernel) TD_UPDATE_##NAME,
#include "device/updates.def"
#undef TD_UPDATE
    TD_UPDATE_COUNT
} td__update;
void td__stream_update(td_stream *s, td__update u, const td__optim_hyper *h,
                       const td__optim_slice *x);
/* td__optim_k_lamb_moments of a chunk. */
void td__stream_moments(td_stream *s, const td__optim_hyper *h, const td__optim_slice *x,
                        double sums[2]);
/* td__optim_k_squares of each chunk of TD_OPTIM_CHUNK elements of x; by_chunk is the host's. */
void td__stream_squares(td_stream *s, const float *x, size_t n, float scale, float clip,
                        double *by_chunk);
/* The same of n chunks, elements [at, at + n) of x each, as one launch: list and by_chunk are the
 * device's memory or pinned, x is memory that the device reaches. */
typedef struct td__square_chunk {
    size_t at, n;
} td__square_chunk;
void td__stream_square_chunks(td_stream *s, const float *x, const td__square_chunk *list, size_t n,
                              double *by_chunk);

#endif
