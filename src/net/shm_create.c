/* shm_create.c -- a shared-memory mesh of ranks that know only a store: rank 0 opens the door and
 * leaves its name and token in the store, which only ranks of the job can read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "net/mesh_shm.h"

/* What the store holds. */
typedef struct door_sign {
    char name[sizeof((td__shm_door *)0)->name];
    uint8_t token[sizeof((td__shm_door *)0)->token];
} door_sign;

td_status td__mesh_shm_create(td__store *s, const char *prefix, int rank, int size,
                              td__deadline until, td__mesh **out)
{
    *out = NULL;
    char key[256];
    int n = snprintf(key, sizeof key, "%s/shm", prefix);
    if (n < 0 || n >= (int)sizeof key)
        return TD_FAIL(TD_EINVAL, "the key %s... is too long", prefix);
    td__shm_door door = {.listener = -1};
    door_sign sign;
    if (rank == 0) {
        TD_TRY(td__shm_door_open(&door));
        memcpy(sign.name, door.name, sizeof sign.name);
        memcpy(sign.token, door.token, sizeof sign.token);
        td_status st = TD_OK;
        if (size > 1)
            st = td__store_set(s, key, &sign, sizeof sign, until);
        if (st) {
            close(door.listener);
            return st;
        }
    } else {
        void *value;
        size_t nbytes;
        TD_TRY(td__store_wait(s, key, until, &value, &nbytes));
        bool whole = nbytes == sizeof sign;
        if (whole)
            memcpy(&sign, value, sizeof sign);
        td__free(value);
        if (!whole)
            return TD_FAIL(TD_EPROTO, "the store has %zu bytes under %s instead of %zu", nbytes,
                           key, sizeof sign);
        memcpy(door.name, sign.name, sizeof door.name);
        memcpy(door.token, sign.token, sizeof door.token);
        door.name[sizeof door.name - 1] = 0;
    }
    door.store = s;
    return td__mesh_shm_join(&door, rank, size, until, out);
}
