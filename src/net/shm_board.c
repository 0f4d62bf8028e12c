/* shm_board.c -- cards, counters, the barrier and registered memory of the shared-memory mesh.
 *
 * A board has two cards per rank, used in turn. Card n may be written over card n - 2: this rank
 * has seen everybody's card n - 1, and who posts n - 1 has done with n - 2.
 *
 * Registered memory is one memfd per region, made by rank 0, in which rank r owns part r. The
 * size is agreed on by cards before, and success by cards after, so that either all ranks have the
 * region or none. Each rank touches its own part first, which puts the pages on its own node;
 * then everybody enters all pages into its own tables, so that no collective takes page faults. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "net/shm_segment.h"

enum { GLANCES = 60 };

/* ---- counters ---- */

typedef struct counter_wait {
    const uint64_t *at;
    uint64_t at_least;
} counter_wait;

static bool counter_ready(shm_mesh *m, const void *arg)
{
    (void)m;
    const counter_wait *w = arg;
    return __atomic_load_n(w->at, __ATOMIC_ACQUIRE) >= w->at_least;
}

static td_status await_word(shm_mesh *m, int rank, const uint64_t *at, uint64_t at_least,
                            td__deadline until)
{
    /* What comes within a fraction of a microsecond is not worth a pause, which takes as long. */
    for (int i = m->crowded ? GLANCES - 1 : 0; i < GLANCES; i++)
        if (__atomic_load_n(at, __ATOMIC_ACQUIRE) >= at_least)
            return TD_OK;
    counter_wait w = {at, at_least};
    return td__shm_wait(m, counter_ready, &w, WAITS_RANK + (uint32_t)rank, until);
}

uint64_t td__shm_count(const td__mesh *mesh, td__shm_counter which)
{
    return shm_of(mesh)->ranks[mesh->rank].counter[which].value;
}

void td__shm_raise(td__mesh *mesh, td__shm_counter which, uint64_t to)
{
    shm_mesh *m = shm_of(mesh);
    __atomic_store_n(&m->ranks[mesh->rank].counter[which].value, to, __ATOMIC_RELEASE);
    td__shm_notify(m, -1);
}

td_status td__shm_await(td__mesh *mesh, int rank, td__shm_counter which, uint64_t at_least,
                        td__deadline until)
{
    shm_mesh *m = shm_of(mesh);
    return await_word(m, rank, &m->ranks[rank].counter[which].value, at_least, until);
}

static td_status await_all(td__mesh *mesh, td__shm_counter which, uint64_t at_least,
                           td__deadline until)
{
    for (int i = 1; i < mesh->size; i++) {
        int r = mesh->rank + i < mesh->size ? mesh->rank + i : mesh->rank + i - mesh->size;
        TD_TRY(td__shm_await(mesh, r, which, at_least, until));
    }
    return TD_OK;
}

bool td__shm_reached(const td__mesh *mesh, int rank, td__shm_counter which, uint64_t at_least)
{
    const uint64_t *at = &shm_of(mesh)->ranks[rank].counter[which].value;
    return __atomic_load_n(at, __ATOMIC_ACQUIRE) >= at_least;
}

uint64_t td__shm_come(td__mesh *mesh)
{
    uint64_t number = td__shm_count(mesh, TD_SHM_MET) + 1;
    td__shm_raise(mesh, TD_SHM_MET, number);
    return number;
}

td_status td__shm_meet(td__mesh *mesh, td__deadline until)
{
    TD_TRY(td__shm_health(shm_of(mesh)));
    return await_all(mesh, TD_SHM_MET, td__shm_come(mesh), until);
}

void *td__shm_stage(const td__mesh *mesh, int rank, uint64_t chunk)
{
    const shm_mesh *m = shm_of(mesh);
    size_t i = (size_t)rank * TD_SHM_STAGES + (size_t)(chunk % TD_SHM_STAGES);
    return m->map + m->at.stages + i * TD_SHM_STAGE;
}

/* ---- the board ---- */

void *td__shm_slot(td__mesh *mesh)
{
    shm_mesh *m = shm_of(mesh);
    return shm_board_of(m, mesh->rank, m->cards + 1)->payload;
}

void td__shm_post(td__mesh *mesh, const td__shm_card *card)
{
    shm_mesh *m = shm_of(mesh);
    m->cards++;
    td__shm_card *mine = &shm_board_of(m, mesh->rank, m->cards)->card;
    memcpy(mine->agree, card->agree, sizeof *card - offsetof(td__shm_card, agree));
    __atomic_store_n(&mine->number, m->cards, __ATOMIC_RELEASE);
    td__shm_notify(m, -1);
}

bool td__shm_has_card(const td__mesh *mesh, int rank)
{
    const shm_mesh *m = shm_of(mesh);
    return __atomic_load_n(&shm_board_of(m, rank, m->cards)->card.number, __ATOMIC_ACQUIRE) >=
           m->cards;
}

td_status td__shm_await_card(td__mesh *mesh, int rank, td__deadline until)
{
    shm_mesh *m = shm_of(mesh);
    return await_word(m, rank, &shm_board_of(m, rank, m->cards)->card.number, m->cards, until);
}

td_status td__shm_see(td__mesh *mesh, td__deadline until, int *differs)
{
    for (int i = 1; i < mesh->size; i++) {
        int r = mesh->rank + i < mesh->size ? mesh->rank + i : mesh->rank + i - mesh->size;
        TD_TRY(td__shm_await_card(mesh, r, until));
    }
    TD_TRY(td__shm_health(shm_of(mesh)));
    if (!differs)
        return TD_OK;
    *differs = -1;
    const uint64_t *want = td__shm_card_of(mesh, 0)->agree;
    for (int r = mesh->size - 1; r > 0; r--) {
        const uint64_t *have = td__shm_card_of(mesh, r)->agree;
        if (have[0] != want[0] || have[1] != want[1])
            *differs = r;
    }
    return TD_OK;
}

const td__shm_card *td__shm_card_of(const td__mesh *mesh, int rank)
{
    const shm_mesh *m = shm_of(mesh);
    return &shm_board_of(m, rank, m->cards)->card;
}

const void *td__shm_payload_of(const td__mesh *mesh, int rank)
{
    const shm_mesh *m = shm_of(mesh);
    return shm_board_of(m, rank, m->cards)->payload;
}

/* ---- registered memory ---- */

#define CARD_SHARE UINT64_C(0x6572616873) /* unlike any collective's first word */

/* All ranks say how they fared; the first one's failure is everybody's. */
static td_status all_well(td__mesh *mesh, td_status mine, const char *what, td__deadline until)
{
    td__shm_card card = {.agree = {CARD_SHARE, 0}, .where = {(uint64_t)(uint32_t)-mine, 0}};
    td__shm_post(mesh, &card);
    TD_TRY(td__shm_see(mesh, until, NULL));
    for (int r = 0; r < mesh->size; r++) {
        td_status st = (td_status) - (int)td__shm_card_of(mesh, r)->where[0];
        if (st)
            return TD_FAIL(st, "rank %d could not %s", r, what);
    }
    return TD_OK;
}

static td_status agree_on_size(shm_mesh *m, size_t nbytes, td__deadline until)
{
    td__shm_card card = {.agree = {CARD_SHARE, nbytes}};
    int differs;
    td__shm_post(&m->mesh, &card);
    TD_TRY(td__shm_see(&m->mesh, until, &differs));
    if (differs < 0)
        return TD_OK;
    const uint64_t *a = td__shm_card_of(&m->mesh, 0)->agree;
    const uint64_t *b = td__shm_card_of(&m->mesh, differs)->agree;
    if (a[0] != CARD_SHARE || b[0] != CARD_SHARE)
        return td__shm_fail(m, TD_EMISMATCH,
                            "rank %d registers memory while rank %d is in another call",
                            a[0] == CARD_SHARE ? 0 : differs, a[0] == CARD_SHARE ? differs : 0);
    return td__shm_fail(m, TD_EMISMATCH,
                        "registered memory: rank 0 wants %llu bytes, rank %d wants %llu",
                        (unsigned long long)a[1], differs, (unsigned long long)b[1]);
}

/* Rank 0 makes the memfd; *fd is -1 everywhere if it could not. */
static td_status pass_region(shm_mesh *m, size_t total, td__deadline until, int *fd)
{
    uint8_t byte = 0;
    *fd = -1;
    if (m->mesh.rank > 0) {
        int n = 1;
        return td__shm_recv_fds(m, m->channel[0], &byte, 1, fd, &n, until);
    }
    int made = memfd_create("tandem-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made >= 0 && (ftruncate(made, (off_t)total) ||
                      fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))) {
        close(made);
        made = -1;
    }
    *fd = made;
    for (int r = 1; r < m->mesh.size; r++)
        TD_TRY(td__shm_send_fds(m->channel[r], &byte, 1, &made, made >= 0));
    return TD_OK;
}

static void populate(void *p, size_t nbytes, bool *ok)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(p, nbytes, MADV_POPULATE_WRITE) && errno != EINVAL)
        *ok = false;
#else
    (void)p, (void)nbytes, (void)ok;
#endif
}

static td_status map_region(shm_mesh *m, int fd, size_t part, size_t total, td__deadline until,
                            void **map)
{
    void *p = MAP_FAILED;
    bool ok = fd >= 0;
    if (ok)
        p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ok = ok && p != MAP_FAILED;
    if (ok) {
        madvise(p, total, MADV_HUGEPAGE); /* where the kernel gives them to shared memory */
        populate((uint8_t *)p + (size_t)m->mesh.rank * part, part, &ok);
    }
    td_status st = all_well(&m->mesh, ok ? TD_OK : TD_ENOMEM, "get the registered memory", until);
    if (st) {
        if (p != MAP_FAILED)
            munmap(p, total);
        return st;
    }
    populate(p, total, &ok);
    *map = p;
    return TD_OK;
}

td_status td__shm_share(td__mesh *mesh, size_t nbytes, td__deadline until, void **base,
                        uint64_t *id)
{
    shm_mesh *m = shm_of(mesh);
    TD_TRY(td__shm_health(m));
    TD_TRY(agree_on_size(m, nbytes, until));
    size_t total, part = nbytes > SIZE_MAX / 2 ? SIZE_MAX : td__align_up(nbytes ? nbytes : 1, PAGE);
    if (!td__size_mul(part, (size_t)mesh->size, &total) || total > PTRDIFF_MAX)
        return TD_FAIL(TD_EINVAL, "%zu bytes on each of %d ranks: too much to register", nbytes,
                       mesh->size);
    shm_region *region = td__calloc(1, sizeof *region);
    int fd = -1;
    td_status st;
    TD_TRY_OR(st, done, pass_region(m, total, until, &fd));
    if (!region && fd >= 0) { /* tell the others by not mapping */
        close(fd);
        fd = -1;
    }
    void *map = NULL;
    TD_TRY_OR(st, done, map_region(m, fd, part, total, until, &map));
    *region = (shm_region){.id = ++m->regions, .map = map, .nbytes = total, .next = m->region};
    m->region = region;
    for (int r = 0; r < mesh->size; r++)
        base[r] = (uint8_t *)map + (size_t)r * part;
    *id = region->id;
    region = NULL;
done:
    if (fd >= 0)
        close(fd);
    td__free(region);
    return st;
}

void td__shm_unshare(td__mesh *mesh, uint64_t id)
{
    shm_mesh *m = shm_of(mesh);
    for (shm_region **p = &m->region; *p; p = &(*p)->next) {
        if ((*p)->id != id)
            continue;
        shm_region *gone = *p;
        *p = gone->next;
        munmap(gone->map, gone->nbytes);
        td__free(gone);
        return;
    }
}
