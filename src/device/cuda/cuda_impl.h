/* cuda_impl.h -- what the files of this device share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_CUDA_CUDA_IMPL_H
#define TD_DEVICE_CUDA_CUDA_IMPL_H

#include "device/cuda/cuda.h"
#include "device/device_impl.h"
#include "device/pool.h"

enum { TD__CUDA_MAX_IMAGES = 64 };

/* The kernels of blocks.cu. */
typedef enum td__cuda_block_kernel {
    TD__CUDA_BLEND,
    TD__CUDA_BLENDED,
    TD__CUDA_SCALE,
    TD__CUDA_MOMENTS,
    TD__CUDA_SQUARES,
    TD__CUDA_SQUARE_CHUNKS,
    TD__CUDA_COPIES,
    TD__CUDA_FILL,
    TD__CUDA_UPDATE, /* and TD_UPDATE_COUNT of them */
    TD__CUDA_BLOCK_KERNELS = TD__CUDA_UPDATE + TD_UPDATE_COUNT
} td__cuda_block_kernel;

typedef struct td__cuda_gpu {
    td_device base;
    CUdevice device;
    CUcontext context;
    td__cuda_kind kind;
    td__pool_blocks *pool, *pinned;
    CUmodule modules[TD__CUDA_MAX_IMAGES];
    CUfunction blocks[TD__CUDA_BLOCK_KERNELS];
} td__cuda_gpu;

enum {
    TD__CUDA_EVENTS = 256,       /* that a stream remembers; an older one counts as a newer one */
    TD__CUDA_STAGING = 16 << 20, /* bytes of device memory for what comes from or goes to a host */
};

typedef struct td__cuda_stream_t {
    td_stream base;
    CUstream stream;
    pthread_mutex_t lock; /* of the following */
    CUevent events[TD__CUDA_EVENTS];
    uint64_t recorded;
    CUdeviceptr staging; /* made when it is first needed */
} td__cuda_stream_t;

extern const td_arith_ops td__arith_cuda;

/* cuda_stream.c */
TD_NODISCARD td_status td__cuda_stream_create(td_device *d, td_stream **out);
void td__cuda_stream_destroy(td_stream *s);
void td__cuda_call(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes);
void td__cuda_copy(td_stream *s, void *to, const void *from, size_t nbytes);
void td__cuda_record(td_stream *s, td_event *e);
void td__cuda_wait(td_stream *s, const td_event *e);
bool td__cuda_done(const td_event *e, td__deadline until);
/* cuda_tape.c */
TD_NODISCARD td_status td__cuda_tape_begin(td_stream *s);
TD_NODISCARD td_status td__cuda_tape_end(td_stream *s, void **tape);
void td__cuda_tape_play(td_stream *s, void *tape);
void td__cuda_tape_destroy(td_stream *s, void *tape);
/* cuda_peer.c */
TD_NODISCARD td_status td__cuda_peer_alloc(td_mem *m);
void td__cuda_peer_free(const td_mem *m);
TD_NODISCARD td_status td__cuda_processor(const td_device *d, unsigned char out[16]);
TD_NODISCARD td_status td__cuda_handle(const td_mem *m, td__mem_ticket *out);
TD_NODISCARD td_status td__cuda_open_peer(td_mem *m, const td__mem_ticket *t);
/* cuda_timer.c */
TD_NODISCARD td_status td__cuda_timer(td_device *d, int n, void **out);
void td__cuda_timer_destroy(td_device *d, int n, void *timer);
void td__cuda_timer_mark(td_stream *s, void *timer, int i);
uint64_t td__cuda_timer_ns(td_device *d, void *timer, int from, int to);
/* A failure of the driver becomes the stream's. */
void td__cuda_check(td_stream *s, CUresult r, const char *what);

#endif
