/* meshes.c -- see meshes.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/meshes.h"

#include <stdio.h>

#include "base/check.h"
#include "net/mesh_inproc.h"
#include "net/mesh_shm.h"
#include "net/tls.h"
#include "support/check.h"

static void *rank_main(void *p)
{
    mesh_rank *a = p;

    a->st = a->run(a->mesh);
    snprintf(a->text, sizeof a->text, "%s", a->st ? td_last_error() : "");
    td__mesh_destroy(a->mesh);
    return NULL;
}

static td_status create_inproc(int size, td__mesh **out)
{
    return td__mesh_inproc_create(size, out);
}

typedef struct join_arg {
    td__shm_door door;
    int rank, size;
    td__mesh *mesh;
    td_status st;
} join_arg;

static void *join_main(void *p)
{
    join_arg *a = p;

    a->st =
        td__mesh_shm_join(&a->door, a->rank, a->size, td__deadline_in_ms(MESH_SOON_MS), &a->mesh);
    return NULL;
}

static td_status create_shm(int size, td__mesh **out)
{
    join_arg a[MESH_MOST] = {0};
    pthread_t thread[MESH_MOST];
    td_status st = td__shm_door_open(&a[0].door);

    if (st)
        return st;
    for (int i = 0; i < size; i++) {
        a[i].door = a[0].door;
        a[i].rank = i;
        a[i].size = size;
        assert_int_equal(pthread_create(&thread[i], NULL, join_main, &a[i]), 0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(thread[i], NULL);
        out[i] = a[i].mesh;
        st = st ? st : a[i].st;
    }
    return st;
}

const td__secret MESH_SECRET = {{7, 7, 7}};

void *mesh_tcp_main(void *p)
{
    mesh_tcp_rank *a = p;
    td__store *store;
    td__deadline until = td__deadline_in_ms(MESH_SOON_MS);

    a->st = td__store_connect(a->store, &MESH_SECRET, NULL, until, &store);
    if (!a->st)
        a->st = td__mesh_tcp_create(store, "test", a->rank, a->size, &MESH_SECRET, &a->opts, until,
                                    &a->mesh);
    snprintf(a->text, sizeof a->text, "%s", a->st ? td_last_error() : "");
    td__store_close(store);
    return NULL;
}

td_status meshes_create_tcp(int size, const td__mesh_tcp_opts *o, td__mesh **out)
{
    td__store_server *server;
    mesh_tcp_rank a[MESH_MOST];

    CHECK_OK(td__store_server_create(&MESH_SECRET, NULL, &server));
    for (int r = 0; r < size; r++) {
        a[r] = (mesh_tcp_rank){
            .store = td__store_server_address(server), .rank = r, .size = size, .opts = *o};
        assert_int_equal(pthread_create(&a[r].thread, NULL, mesh_tcp_main, &a[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(a[r].thread, NULL);
        CHECK(a[r].st == TD_OK, "rank %d: %s", r, a[r].text);
        out[r] = a[r].mesh;
    }
    td__store_server_destroy(server);
    return TD_OK;
}

static td_status create_tcp(int size, td__mesh **out)
{
    return meshes_create_tcp(size, &(td__mesh_tcp_opts){0}, out);
}

static td_status create_tcp_streams(int size, td__mesh **out)
{
    return meshes_create_tcp(size, &(td__mesh_tcp_opts){.streams = 3, .checksum = true}, out);
}

static td_status create_tls(int size, td__mesh **out)
{
    td__mesh_tcp_opts o = {.streams = 2, .tls_dir = check_tmpdir()};
    td_status st = td__tls_make(o.tls_dir);

    st = st ? st : meshes_create_tcp(size, &o, out);
    check_tmpdir_remove();
    return st;
}

static const struct {
    const char *name;
    td_status (*create)(int size, td__mesh **out); /* all ranks */
} TRANSPORTS[] = {
    {"inproc", create_inproc}, {"shm", create_shm},
    {"tcp", create_tcp},       {"tcp, 3 streams, checksum", create_tcp_streams},
    {"tls", create_tls},
};

const int mesh_n_transports = TD_LEN(TRANSPORTS);

const char *mesh_transport_name(int transport)
{
    return TRANSPORTS[transport].name;
}

void meshes_run_on(td__mesh *const *mesh, int size, mesh_body *run, mesh_rank *r)
{
    pthread_t thread[MESH_MOST];

    for (int i = 0; i < size; i++) {
        r[i] = (mesh_rank){.mesh = mesh[i], .run = run};
        assert_int_equal(pthread_create(&thread[i], NULL, rank_main, &r[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(thread[i], NULL);
}

void meshes_run(int transport, int size, mesh_body *run, mesh_rank *r)
{
    td__mesh *mesh[MESH_MOST];

    CHECK_OK(TRANSPORTS[transport].create(size, mesh));
    meshes_run_on(mesh, size, run, r);
}

void meshes_expect_ok(const mesh_rank *r, int size, int transport)
{
    for (int i = 0; i < size; i++)
        CHECK(r[i].st == TD_OK, "%s: rank %d of %d: %s", mesh_transport_name(transport), i, size,
              r[i].text);
}

td_status mesh_wait_one(td__mesh *m, td__xfer *x)
{
    return td__mesh_wait(m, &x, 1, td__deadline_in_ms(MESH_SOON_MS));
}

unsigned char mesh_pattern(int from, int to, size_t i)
{
    return (unsigned char)((size_t)from * 31 + (size_t)to * 7 + i * 13 + (i >> 8));
}
