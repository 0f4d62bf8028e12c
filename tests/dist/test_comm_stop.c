/* A comm that is not wanted any more is given up at once, whatever its making waits for: a store
 * that does not answer, or ranks that do not come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "coll/comm_setup.h"
#include "net/gate.h"
#include "net/socket.h"
#include "support/check.h"

enum { PATIENCE_MS = 60000 }; /* far more than stopping may take */

static const td__secret SECRET = {{1, 2, 3}};

typedef struct maker {
    td__world w;
    td__comm_stop stop;
    td_comm *comm;
    td_status st;
    char text[400];
    pthread_t thread;
} maker;

static void *make(void *arg)
{
    maker *k = arg;
    k->st = td__comm_create(&k->w, &(td_comm_opts){.setup_ms = PATIENCE_MS}, &k->comm);
    snprintf(k->text, sizeof k->text, "%s", k->st ? td_last_error() : "");
    return NULL;
}

/* Rank 0 of two. */
static void begin(maker *k, const char *store)
{
    *k = (maker){.w = {.size = 2,
                       .local_rank = -1,
                       .local_size = -1,
                       .host = "here",
                       .hostname = "here",
                       .address = "127.0.0.1",
                       .space = "g1",
                       .secret = SECRET}};
    snprintf(k->w.store, sizeof k->w.store, "%s", store);
    td__comm_stop_init(&k->stop);
    k->w.stop = &k->stop;
    CHECK(pthread_create(&k->thread, NULL, make, k) == 0, "no thread");
}

static void end(maker *k)
{
    td__comm_stop_now(&k->stop, "there is a newer one");
    pthread_join(k->thread, NULL);
    CHECK(k->st == TD_EABORTED, "%s: %s", td_status_name(k->st), k->text);
    CHECK(strstr(k->text, "there is a newer one"), "%s", k->text);
    CHECK(!k->comm, "made");
    td__comm_stop_fini(&k->stop);
}

static void await_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, PATIENCE_MS) == 1, "nobody came");
}

/* Whoever should host the store is stopped: its kernel takes the connection, and nobody answers. */
TEST(while_it_connects)
{
    char address[TD_ADDRESS_BYTES];
    int listener;
    maker k;
    CHECK_OK(td__socket_listen("127.0.0.1:0", &listener, address));
    begin(&k, address);
    await_readable(listener);
    end(&k);
    close(listener);
}

/* Nobody is there any more: it tries again and again. */
TEST(while_it_is_refused)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    char address[TD_ADDRESS_BYTES];
    maker k;
    int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* the port, and does not listen */
    CHECK(held >= 0 && !bind(held, (struct sockaddr *)&a, n) &&
              !getsockname(held, (struct sockaddr *)&a, &n),
          "no port");
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(a.sin_port));
    begin(&k, address);
    end(&k);
    close(held);
}

static void keep(void *user, td__conn conn)
{
    *(td__conn *)user = conn;
}

/* It lets in, and then says nothing. */
TEST(while_it_asks)
{
    char address[TD_ADDRESS_BYTES];
    int listener;
    td__conn in = td__conn_of(-1);
    td__gate *gate;
    maker k;
    CHECK_OK(td__socket_listen("127.0.0.1:0", &listener, address));
    CHECK_OK(td__gate_create_take(listener, TD_HS_STORE, &SECRET, NULL, &gate));
    begin(&k, address);
    while (in.fd < 0) {
        await_readable(td__gate_fd(gate));
        td__gate_serve(gate, keep, &in);
    }
    await_readable(in.fd); /* the first question */
    end(&k);
    td__conn_close(&in);
    td__gate_destroy(gate);
}

/* Rank 1 does not come. */
TEST(while_ranks_meet)
{
    td__store_server *server;
    td__store *other;
    void *value;
    size_t nbytes;
    maker k;
    CHECK_OK(td__store_server_create(&SECRET, NULL, &server));
    begin(&k, td__store_server_address(server));
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    CHECK_OK(td__store_connect(td__store_server_address(server), &SECRET, NULL, until, &other));
    CHECK_OK(td__store_wait(other, "g1/rank0", until, &value, &nbytes));
    td__free(value);
    end(&k);
    td__store_close(other);
    td__store_server_destroy(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_it_connects),
        cmocka_unit_test(while_it_is_refused),
        cmocka_unit_test(while_it_asks),
        cmocka_unit_test(while_ranks_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
