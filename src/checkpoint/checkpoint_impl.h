/* checkpoint_impl.h -- the inside of checkpoints: a save under way, state.json, directories. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CHECKPOINT_CHECKPOINT_IMPL_H
#define TD_CHECKPOINT_CHECKPOINT_IMPL_H

#include <pthread.h>

#include "base/sha256.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/names.h"
#include "run/run_dir.h"
#include "tandem/tensor.h"

#define TD__TEMP_PREFIX ".tmp-"
#define TD__OLD_PREFIX ".old-" /* of one that is being replaced */

/* A process that takes over writes its token into this file of the directory. Its predecessor may
 * only have been stopped, with its lock or, on a network file system, without: when it goes on it
 * sees another token than it knows, and writes nothing more. */
#define TD__WRITER_FILE "writer"
enum { TD__WRITER_TOKEN = 17 }; /* bytes, with the final zero */

/* What state.json says. */
typedef struct td__manifest {
    td__train_state state;
    int arithmetic; /* as in td__checkpoint_info; read */
    char optimizer[32];
    uint64_t optimizer_steps;
    td__processor processor; /* what computed it; "": not known */
    struct {
        uint64_t nbytes;
        char sha256[TD_SHA256_HEX];
    } file[TD__FILE_COUNT];
} td__manifest;

bool td__manifest_has(const td__manifest *m, td__checkpoint_file f);
TD_NODISCARD td_status td__manifest_write(const td__manifest *m, const char *path);
TD_NODISCARD td_status td__manifest_read(td__manifest *m, const char *path);
/* Size and sha256 of a file. */
TD_NODISCARD td_status td__manifest_hash(td__manifest *m, td__checkpoint_file f, const char *path);

struct td__checkpointer {
    char dir[TD__PATH];
    int dir_fd;                    /* locked, for as long as we live */
    char writer[TD__WRITER_TOKEN]; /* what TD__WRITER_FILE says while we may write; "": no file */
    bool took_over;                /* the token is ours, and part of temporary names */
    int keep;
    td__points *points; /* NULL: nobody counts what is done to files */
    pthread_t thread;
    bool started;
    uint32_t patience_ms;
    pthread_mutex_t lock; /* of the six below; nothing else is taken under it */
    pthread_cond_t changed;
    bool busy, stop, finished; /* finished: a save that nobody has polled yet */
    bool given_up;             /* nobody waits for the thread: it destroys this when it ends */
    td_status status;          /* of the last save */
    char error[1024];
    /* The save under way: the caller's while not busy, the thread's while busy. */
    td__manifest m;
    bool is_best;
    td_params *copy;     /* of the caller's; NULL: nothing was saved yet */
    const td_params *ps; /* whose tensors are written: the copy, or what `from` shows */
    const char *state_name[TD_OPTIM_MAX_STATE];
    float *states;
    int n_states;
    size_t states_nbytes, stride;
    td__block_copies blocks;           /* beside them */
    td__text preprocessing;            /* of all saves; empty: none */
    const td__checkpoint_source *from; /* NULL: the copies are saved */
    double stalled, seconds;
    size_t nbytes;
    char path[TD__PATH];
};

/* checkpoint_write.c: the save under way, on the thread. */
TD_NODISCARD td_status td__checkpoint_write(td__checkpointer *c);

/* ".old-step-00000100": what step-00000100 was before it is, or was to be, replaced. */
bool td__is_replaced(const char *name);
/* The steps of all checkpoints in dir, highest first; *out is freed with td__free. */
TD_NODISCARD td_status td__checkpoint_list(const char *dir, uint64_t **out, int *count);
/* Replace the name in the file `pointer`, at once. */
TD_NODISCARD td_status td__checkpoint_point(const char *dir, td__points *points,
                                            const char *pointer, const char *name);
/* Take the checkpoint away; it is there whole, or not at all. */
TD_NODISCARD td_status td__checkpoint_remove(const char *dir, const char *name);

/* checkpoint_writer.c: remember who writes in c->dir, be it from now on, and is it still so? */
void td__checkpoint_writer_find(td__checkpointer *c);
TD_NODISCARD td_status td__checkpoint_writer_become(td__checkpointer *c);
TD_NODISCARD td_status td__checkpoint_writer_check(const td__checkpointer *c);

/* checkpoint_dir.c: TD_EIO with errno's text; fsync of a directory; a checkpoint's directory, its
 * files too (what cannot be removed is left to the next sweep). */
td_status td__checkpoint_disk_failed(const char *path, const char *what);
TD_NODISCARD td_status td__checkpoint_sync_dir(const char *path);
void td__checkpoint_remove_dir(const char *path);
/* What a run that was killed has left in dir. While no other process writes there. */
TD_NODISCARD td_status td__checkpoint_sweep(const char *dir);
/* Give the directory `temp` its name, dir/name, which is `path`; it may hold the old one
 * afterwards. */
TD_NODISCARD td_status td__checkpoint_install(const char *dir, const char *temp, const char *name,
                                              const char *path);

#endif
