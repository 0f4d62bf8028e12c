/* The shared-memory mesh between processes: the barrier, the board, registered memory, messages,
 * what a rank's death, stop and goodbye do to the others, strangers at the door, and that nothing
 * is left afterwards. (test_mesh.c has what all transports share.) */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "net/mesh_shm.h"
#include "support/check.h"
#include "support/procs.h"

enum { SOON_MS = 100000, VICTIM = 1 };

typedef struct scene {
    td__shm_door door;
    int *shared; /* [0]: rounds of the victim; [1 ..]: per rank */
    int how;
    td_status want;
    const char *text; /* that the error must contain */
} scene;

static int complain(int rank, const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, td_last_error());
    return 1;
}

static td__deadline soon(void)
{
    return td__deadline_in_ms(SOON_MS);
}

/* Runs on ranks: join, do, leave; descriptors and mappings must be as before. */
static int with_mesh(scene *s, int rank, int size, int (*run)(td__mesh *m, scene *s))
{
    td__mesh *m;
    if (rank != 0) {
        close(s->door.listener);
        s->door.listener = -1;
    }
    int fds = procs_count_fds(), maps = procs_count_maps("memfd:tandem");
    if (td__mesh_shm_join(&s->door, rank, size, soon(), &m))
        return complain(rank, "join");
    int result = run(m, s);
    td__mesh_destroy(m);
    if (rank == 0)
        fds--; /* the listener */
    if (procs_count_fds() != fds || procs_count_maps("memfd:tandem") != maps)
        return complain(rank, "descriptors or mappings are left");
    return result;
}

static void run_world(int size, procs_body *body, scene *s)
{
    procs p;
    CHECK_OK(td__shm_door_open(&s->door));
    procs_start(&p, size, body, s);
    close(s->door.listener);
    procs_wait_all(&p, SOON_MS);
}

/* ---- what works ---- */

static int meet_often(td__mesh *m, scene *s)
{
    int *cell = s->shared + 1;
    for (int round = 1; round <= 300; round++) {
        __atomic_store_n(&cell[m->rank], round, __ATOMIC_RELAXED);
        if (m->ops->meet(m, soon()))
            return complain(m->rank, "meet");
        for (int r = 0; r < m->size; r++) {
            int seen = __atomic_load_n(&cell[r], __ATOMIC_RELAXED);
            if (seen != round && seen != round + 1)
                return complain(m->rank, "somebody passed the barrier alone");
        }
    }
    return 0;
}

static int post_cards(td__mesh *m, scene *s)
{
    (void)s;
    for (uint64_t round = 0; round < 200; round++) {
        td__shm_card card = {.agree = {7, round}, .where = {(uint64_t)m->rank, round}};
        memset(td__shm_slot(m), (int)(round + (uint64_t)m->rank), TD_SHM_SLOT);
        bool odd_one = round == 199 && m->rank == m->size - 1;
        card.agree[1] += odd_one;
        td__shm_post(m, &card);
        int differs;
        if (td__shm_see(m, soon(), &differs))
            return complain(m->rank, "see");
        if (differs != (round == 199 && m->size > 1 ? m->size - 1 : -1))
            return complain(m->rank, "who differs");
        for (int r = 0; r < m->size; r++) {
            const uint8_t *payload = td__shm_payload_of(m, r);
            uint8_t want = (uint8_t)(round + (uint64_t)r);
            if (td__shm_card_of(m, r)->where[0] != (uint64_t)r || payload[0] != want ||
                payload[TD_SHM_SLOT - 1] != want)
                return complain(m->rank, "a card or its payload is wrong");
        }
    }
    return 0;
}

static int share_memory(td__mesh *m, scene *s)
{
    (void)s;
    void *base[PROCS_MOST];
    uint64_t id[2];
    const size_t nbytes = 10000;
    for (int k = 0; k < 2; k++) {
        if (m->ops->share(m, nbytes, soon(), base, &id[k]))
            return complain(m->rank, "share");
        for (size_t i = 0; i < nbytes; i++)
            if (((uint8_t *)base[m->rank])[i] != 0)
                return complain(m->rank, "registered memory is not zero");
        memset(base[m->rank], m->rank + 1 + k, nbytes);
        if (m->ops->meet(m, soon()))
            return complain(m->rank, "meet");
        for (int r = 0; r < m->size; r++)
            if (((uint8_t *)base[r])[nbytes - 1] != r + 1 + k)
                return complain(m->rank, "a peer's part does not show");
    }
    m->ops->unshare(m, id[0]); /* the other goes with the mesh */
    return 0;
}

/* Everybody sends to everybody messages of a few sizes, larger than a ring too. */
static int exchange(td__mesh *m, scene *s)
{
    (void)s;
    static const size_t SIZES[] = {0, 1, 5000, 700001};
    enum { KINDS = 4 };
    td__xfer x[2 * KINDS * PROCS_MOST], *all[2 * KINDS * PROCS_MOST];
    uint8_t *data[2 * KINDS * PROCS_MOST];
    int n = 0, result = 0;
    for (int k = 0; k < KINDS; k++) {
        for (int peer = 0; peer < m->size; peer++) {
            for (int way = 0; way < 2 && peer != m->rank; way++, n++) {
                data[n] = malloc(SIZES[k] + 1);
                memset(data[n], way ? 0 : m->rank * 16 + peer, SIZES[k] + 1);
                all[n] = &x[n];
                td_status st = way ? td__mesh_recv(m, &x[n], peer, 3, data[n], SIZES[k])
                                   : td__mesh_send(m, &x[n], peer, 3, data[n], SIZES[k]);
                if (st)
                    return complain(m->rank, "start");
            }
        }
    }
    if (td__mesh_wait(m, all, n, soon()))
        return complain(m->rank, "wait");
    for (int i = 0; i < n; i++) {
        for (size_t j = 0; !x[i].is_send && j < x[i].nbytes; j++)
            if (data[i][j] != x[i].peer * 16 + m->rank)
                result = complain(m->rank, "wrong bytes");
        free(data[i]);
    }
    return result;
}

static int (*const WORKS[])(td__mesh *m, scene *s) = {meet_often, post_cards, share_memory,
                                                      exchange};

static int body_works(int rank, int size, void *arg)
{
    scene *s = arg;
    return with_mesh(s, rank, size, WORKS[s->how]);
}

TEST(ranks_share_memory)
{
    static const int SIZES[] = {1, 2, 3, 8};
    for (int how = 0; how < TD_LEN(WORKS); how++) {
        for (int i = 0; i < TD_LEN(SIZES); i++) {
            scene s = {.how = how, .shared = procs_shared_alloc(4096)};
            run_world(SIZES[i], body_works, &s);
            procs_shared_free(s.shared, 4096);
        }
    }
}

static int other_sizes(td__mesh *m, scene *s)
{
    (void)s;
    void *base[PROCS_MOST];
    uint64_t id;
    size_t nbytes = m->rank == 2 ? 200 : 100;
    td_status st = m->ops->share(m, nbytes, soon(), base, &id);
    if (st != TD_EMISMATCH || !strstr(td_last_error(), "100") || !strstr(td_last_error(), "200"))
        return complain(m->rank, "share should name both sizes");
    return 0;
}

static int body_other_sizes(int rank, int size, void *arg)
{
    return with_mesh(arg, rank, size, other_sizes);
}

TEST(registered_memory_of_other_sizes_is_a_mismatch)
{
    scene s = {0};
    run_world(4, body_other_sizes, &s);
}

/* ---- what goes wrong ---- */

/* One call of a kind. */
static td_status call(td__mesh *m, const scene *s, td__deadline until)
{
    if (s->how == 0)
        return m->ops->meet(m, until);
    if (s->how == 1) {
        td__shm_card card = {0};
        td__shm_post(m, &card);
        return td__shm_see(m, until, NULL);
    }
    td__xfer x[2], *both[2] = {&x[0], &x[1]};
    char out = 1, in;
    td_status st = td__mesh_send(m, &x[0], (m->rank + 1) % m->size, 1, &out, 1);
    if (!st)
        st = td__mesh_recv(m, &x[1], (m->rank + m->size - 1) % m->size, 1, &in, 1);
    return st ? st : td__mesh_wait(m, both, 2, until);
}

/* All ranks but one. */
static void come_together(const td__mesh *m, int *here)
{
    td__deadline until = soon();
    __atomic_fetch_add(here, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(here, __ATOMIC_ACQUIRE) < m->size - 1 && !td__deadline_passed(until))
        sched_yield();
}

/* Calls until one fails. The victim leaves or stops itself after 20, else it is killed some time
 * after that. */
static int until_failure(td__mesh *m, scene *s)
{
    td_status st = TD_OK;
    for (int round = 0; !st; round++) {
        bool stops = s->want == TD_ETIMEDOUT && round == 20;
        if (m->rank == VICTIM)
            __atomic_fetch_add(&s->shared[0], 1, __ATOMIC_RELEASE);
        if (m->rank == VICTIM && s->how >= 3 && round == 20)
            return 0; /* leaves */
        if (m->rank == VICTIM && stops)
            kill(getpid(), SIGSTOP);
        if (stops) /* nobody but the victim is late */
            come_together(m, &s->shared[1]);
        st = call(m, s, stops ? td__deadline_in_ms(2000) : soon());
    }
    if (st != s->want || !strstr(td_last_error(), s->text))
        return complain(m->rank, td_status_name(st));
    /* A failure is for ever, except that a wait in shared memory may be tried again. */
    if (s->want == TD_EPEER && call(m, s, soon()) != st)
        return complain(m->rank, "the mesh recovered");
    return 0;
}

static int body_until_failure(int rank, int size, void *arg)
{
    return with_mesh(arg, rank, size, until_failure);
}

static void survive(int how, int signal, td_status want, const char *text)
{
    procs p;
    scene s = {.how = how, .shared = procs_shared_alloc(4096), .want = want, .text = text};
    CHECK_OK(td__shm_door_open(&s.door));
    procs_start(&p, 4, body_until_failure, &s);
    close(s.door.listener);
    procs_await(s.shared, 20, SOON_MS);
    if (signal == SIGKILL)
        procs_signal(&p, VICTIM, signal);
    for (int r = 0; r < 4; r++)
        if (r != VICTIM)
            CHECK_EQ_INT(procs_wait(&p, r, SOON_MS), 0);
    if (signal)
        procs_signal(&p, VICTIM, SIGKILL);
    CHECK_EQ_INT(procs_wait(&p, VICTIM, SOON_MS), signal ? 128 + SIGKILL : 0);
    procs_shared_free(s.shared, 4096);
}

TEST(a_killed_rank_is_named_at_once)
{
    for (int how = 0; how < 3; how++)
        survive(how, SIGKILL, TD_EPEER, "rank 1");
}

TEST(a_stopped_rank_is_named_when_time_is_up)
{
    for (int how = 0; how < 2; how++)
        survive(how, SIGSTOP, TD_ETIMEDOUT, "stopped)");
}

TEST(a_rank_that_left_is_missed)
{
    survive(3, 0, TD_EPEER, "rank 1");
}

/* ---- strangers ---- */

static int stranger(const td__shm_door *door, const void *data, size_t nbytes)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(door->name);
    memcpy(a.sun_path + 1, door->name, n);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    CHECK(connect(fd, (struct sockaddr *)&a, len) == 0, "cannot come to the door");
    if (nbytes)
        CHECK(send(fd, data, nbytes, 0) == (ssize_t)nbytes, "cannot send");
    return fd;
}

TEST(strangers_are_turned_away)
{
    procs p;
    scene s = {.how = 0, .shared = procs_shared_alloc(4096)};
    uint8_t greeting[20] = {0};
    CHECK_OK(td__shm_door_open(&s.door));
    greeting[16] = 1; /* rank 1, with a wrong token */
    int fd[] = {
        stranger(&s.door, NULL, 0),
        stranger(&s.door, "nonsense", 8),
        stranger(&s.door, greeting, sizeof greeting),
    };
    procs_start(&p, 3, body_works, &s);
    close(s.door.listener);
    for (int i = 0; i < TD_LEN(fd); i++)
        close(fd[i]);
    procs_wait_all(&p, SOON_MS);
    procs_shared_free(s.shared, 4096);
}

static int body_alone(int rank, int size, void *arg)
{
    scene *s = arg;
    td__mesh *m;
    td_status st = td__mesh_shm_join(&s->door, rank, size + 1, td__deadline_in_ms(200), &m);
    if (st != TD_ETIMEDOUT || !strstr(td_last_error(), "rank 1"))
        return complain(rank, "joining alone");
    return 0;
}

TEST(who_does_not_come_is_named)
{
    scene s = {0};
    run_world(1, body_alone, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_memory),
        cmocka_unit_test(registered_memory_of_other_sizes_is_a_mismatch),
        cmocka_unit_test(a_killed_rank_is_named_at_once),
        cmocka_unit_test(a_stopped_rank_is_named_when_time_is_up),
        cmocka_unit_test(a_rank_that_left_is_missed),
        cmocka_unit_test(strangers_are_turned_away),
        cmocka_unit_test(who_does_not_come_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
