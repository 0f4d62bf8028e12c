/* mirror_impl.h -- the inside of a mirror: what goes on its way, and what is in the store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_MIRROR_MIRROR_IMPL_H
#define TD_MIRROR_MIRROR_IMPL_H

#include <pthread.h>

#include "checkpoint/names.h"
#include "mirror/mirror.h"
#include "mirror/shards.h"
#include "mirror/tables.h"
#include "remote/remote.h"
#include "remote/url.h"
#include "run/run_dir.h"

/* Milliseconds: without progress, until an attempt is given up; between two looks at the store;
 * between two times that the run's other files are sent. */
enum { TD__SEND_MS = 600000, TD__LOOK_MS = 100, TD__ARTIFACTS_MS = 30000 };
enum { TD__MOST_THERE = 4096, TD__MOST_FILES = 32 };

/* A checkpoint on its way. */
typedef struct td__parcel {
    char name[TD__STEP_NAME]; /* in the spool; "": none */
    td__shard_offer *shards;  /* the ranks send it in shards; NULL: whole */
} td__parcel;

struct td__mirror {
    td__observer observer; /* first: it is handed out as this */
    td__observer *next;
    char url[TD__URL_BYTES], dir[TD__PATH], spool[TD__PATH];
    int keep;
    td__remote *remote;
    pthread_t thread;
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t more;
    td__parcel waiting;
    td__parcel held;        /* passed over; sent whole if no other follows */
    td__shard_offer *offer; /* of the checkpoint that rank 0 is about to be told of */
    bool declined;          /* the ranks do not send that one */
    bool busy;              /* one is being sent, */
    uint64_t generation;    /* by these ranks; */
    bool abandon;           /* some of them are gone */
    bool finish, failed;    /* failed: the run has, and other ranks may be gone */
    int skipped;            /* checkpoints that a newer one has overtaken */
    /* The thread's own. */
    uint64_t there[TD__MOST_THERE]; /* steps: what a run before has left, then those sent */
    int n_there, n_left;            /* n_left: of those that a run before has left */
    json_t *shards;                 /* while it looks what a run before has left */
    json_t *tables;                 /* files of tables that this run has sent: object -> sha256 */
    bool has_tables;
    bool described;         /* job.yaml is there */
    bool resuming;          /* a run before has had checkpoints */
    td__deadline artifacts; /* when they are sent again; 0: now */
    td_status st;           /* of the last one */
    char text[1024];
};

/* store.c: all files of a checkpoint, state.json last. */
TD_NODISCARD td_status td__mirror_put_file(td__mirror *m, const char *folder, const char *name,
                                           const char *file);
TD_NODISCARD td_status td__mirror_put_whole(td__mirror *m, const char *folder, const char *name);
/* A checkpoint of the spool, the best one, what points to them; what is beyond `keep` goes. */
TD_NODISCARD td_status td__mirror_send(td__mirror *m, const td__parcel *p);
/* The run's other files. */
TD_NODISCARD td_status td__mirror_send_artifacts(td__mirror *m);

/* tables.c: what a checkpoint needs of the files in `folder`, and tables.json if that is something;
 * what no checkpoint but the one of `step` needs goes. */
TD_NODISCARD td_status td__mirror_put_tables(td__mirror *m, const char *folder, const char *name,
                                             uint64_t step);
TD_NODISCARD td_status td__mirror_remove_tables(td__mirror *m, uint64_t step);

/* send_shards.c: the same as td__mirror_put_whole, with what the ranks have sent. */
TD_NODISCARD td_status td__mirror_put_shards(td__mirror *m, const char *folder,
                                             const td__parcel *p);

/* A file without a name, as an object. */
TD_NODISCARD td_status td__shard_put(td__remote *r, const char *url, int fd,
                                     char sha256[TD_SHA256_HEX], td__deadline until);

#endif
