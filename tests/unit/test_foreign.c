/* Servers for programs of other systems, in one process: the rendezvous of Horovod, asked without
 * its HTTP server, and what is known of ranks that have asked to be aborted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "launch/foreign/foreign_impl.h"
#include "support/check.h"

enum { SOON_MS = 100000, OK = 200, BAD = 400, NOT_FOUND = 404 };

static td__foreign_answer *ask;
static void *asked;

static td_status start(const char *listen, td__foreign_answer *answer, void *user, void **server,
                       char address[TD_FOREIGN_HTTP_ADDRESS])
{
    (void)listen;
    ask = answer;
    *server = asked = user;
    snprintf(address, TD_FOREIGN_HTTP_ADDRESS, "127.0.0.1:1");
    return TD_OK;
}

static void stop(void *server)
{
    CHECK(server == asked, "another server");
}

typedef struct place {
    td__store_server *store;
    td__agent_spec spec;
    td__rank_plan plan;
    td__foreign *f;
} place;

/* A host of two ranks, the only one. */
static void open_place(place *p)
{
    static const td__foreign_http HTTP = {start, stop};
    *p = (place){.spec = {.framework = "horovod", .address = "127.0.0.1", .http = &HTTP}};
    p->spec.secret.bytes[0] = 7;
    CHECK_OK(td__store_server_create(&p->spec.secret, NULL, &p->store));
    CHECK_OK(td__hosts_parse("a:2", 0, &p->spec.hosts));
    p->plan.store = td__store_server_address(p->store);
    CHECK_OK(td__foreign_create(&p->spec, &p->plan, &p->f));
}

static void close_place(place *p)
{
    td__foreign_destroy(p->f);
    td__hosts_fini(&p->spec.hosts);
    td__store_server_destroy(p->store);
}

static unsigned tell(const char *method, const char *scope, const char *key, const char *value,
                     const char *want)
{
    td__text out = {0};
    unsigned status = ask(asked, method, scope, key, value, strlen(value), &out);
    CHECK(out.used == strlen(want) && !memcmp(out.data ? out.data : "", want, out.used),
          "%s %s/%s gave '%.*s'", method, scope, key, (int)out.used, out.data ? out.data : "");
    td__text_fini(&out);
    return status;
}

static bool is_there(place *p, const char *key)
{
    void *value;
    size_t nbytes;
    CHECK_OK(
        td__store_get(p->f->exchange.store, key, td__deadline_in_ms(SOON_MS), &value, &nbytes));
    td__free(value);
    return value != NULL;
}

/* Ranks ask again every 10 ms: a question writes nothing that the other hosts would be told of. */
TEST(questions_of_horovod_change_nothing)
{
    place p;
    char name[301];

    open_place(&p);
    CHECK_EQ_INT(tell("GET", "global", "0", "", ""), NOT_FOUND);
    CHECK(!is_there(&p, "foreign/horovod-finished/global"), "a question has written");
    CHECK_EQ_INT(tell("PUT", "global", "0", "first", ""), OK);
    CHECK_EQ_INT(tell("GET", "global", "0", "", "first"), OK);
    CHECK(!is_there(&p, "foreign/horovod-finished/global"), "a question has written");
    for (int i = 0; i < 2; i++) /* said twice, it counts once */
        CHECK_EQ_INT(tell("DELETE", "global", "0", "", ""), OK);
    CHECK_EQ_INT(tell("GET", "global", "0", "", "first"), OK);
    CHECK_EQ_INT(tell("DELETE", "global", "1", "", ""), OK);
    CHECK_EQ_INT(tell("GET", "global", "0", "", ""), NOT_FOUND);
    memset(name, 'k', sizeof name);
    for (size_t n = 200; n < sizeof name; n++) { /* a name is taken whole, or refused */
        name[n] = 0;
        unsigned put = tell("PUT", "own", name, "v", "");
        CHECK(put == (n < 234 ? OK : BAD), "%u for a name of %zu bytes", put, n);
        unsigned left = tell("DELETE", "global", name, "", "");
        CHECK(left == (n < 210 ? OK : BAD), "%u for a name of %zu bytes", left, n);
        CHECK_EQ_INT(tell("PUT", name, "0", "v", ""), n < 231 ? OK : BAD);
        name[n] = 'k';
    }
    close_place(&p);
}

static bool readable(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

/* What is asked of one rank takes nothing from the others. */
TEST(no_abort_is_lost)
{
    place p;

    open_place(&p);
    int fd = td__foreign_fd(p.f);
    CHECK(!readable(fd), "nobody has asked");
    td__foreign_abort(p.f, 1, 7);
    CHECK_EQ_INT(td__foreign_aborted(p.f, 0), -1);
    CHECK(readable(fd), "rank 1 is forgotten");
    td__foreign_hear(p.f);
    CHECK(!readable(fd), "it is heard again and again");
    CHECK_EQ_INT(td__foreign_aborted(p.f, 1), 7);
    td__foreign_abort(p.f, 0, 256);
    CHECK(readable(fd), "the second is not heard");
    CHECK_EQ_INT(td__foreign_aborted(p.f, 0), 1);
    CHECK_EQ_INT(td__foreign_aborted(NULL, 0), -1);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_of_horovod_change_nothing),
        cmocka_unit_test(no_abort_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
