/* The stream of a cluster's events: it goes on at the version of a bookmark, and begins anew, with
 * a look at everything, when the server has forgotten that one: as an answer 410 or as an event. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/deadline.h"
#include "rpc/loop.h"
#include "service/config.h"
#include "service/track/tracker.h"
#include "support/check.h"
#include "support/http_server.h"

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
#define BOOKMARK(v) \
    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"" v "\"}}}\n"

enum { STEPS = 7 };

static const struct {
    const char *asked, *answer;
} PLAY[STEPS] = {
    {"limit=1", STREAM "{\"metadata\":{\"resourceVersion\":\"5\"}}"},
    {"&resourceVersion=5 ", STREAM BOOKMARK("9")},
    {"&resourceVersion=9 ", "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
    {"limit=1", STREAM "{\"metadata\":{\"resourceVersion\":\"20\"}}"},
    {"&resourceVersion=20 ",
     STREAM BOOKMARK("21") "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n"},
    {"limit=1", STREAM "{\"metadata\":{\"resourceVersion\":\"30\"}}"},
    {"&resourceVersion=30 ", STREAM BOOKMARK("31")},
};

typedef struct play {
    pthread_mutex_t lock;
    int at;
    char wrong[400];
} play;

static const char *answer(void *user, const char *request, const char *body)
{
    play *p = user;
    const char *text = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

    (void)body;
    pthread_mutex_lock(&p->lock);
    if (p->at < STEPS && !p->wrong[0]) {
        if (strstr(request, PLAY[p->at].asked))
            text = PLAY[p->at++].answer;
        else
            snprintf(p->wrong, sizeof p->wrong, "step %d: %.*s", p->at,
                     (int)strcspn(request, "\r\n"), request);
    }
    pthread_mutex_unlock(&p->lock);
    return text;
}

static bool is_over(play *p)
{
    pthread_mutex_lock(&p->lock);
    bool over = p->at == STEPS || p->wrong[0];
    pthread_mutex_unlock(&p->lock);
    return over;
}

static void hear(void *arg, const td__track_event *e)
{
    (void)arg;
    (void)e;
}

TEST(watches_go_on_and_begin_anew)
{
    static play p = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char path[] = "/tmp/tandem-kube-XXXXXX", set[64];
    const char *sets[] = {set};
    td__service_config *c;
    td__tracker *t;
    td__loop *loop;
    http_server *s = http_server_start(NULL);
    FILE *f = fdopen(mkstemp(path), "w");

    http_server_answer(s, answer, &p);
    fprintf(f,
            "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
            "clusters: [{name: k, cluster: {server: \"%.*s\"}}]\nusers: [{name: u, user: {token: "
            "t}}]\n",
            (int)(strlen(http_server_url(s, "")) - 1), http_server_url(s, ""));
    assert_int_equal(fclose(f), 0);
    snprintf(set, sizeof set, "kubernetes.config=%s", path);
    CHECK_OK(td__config_load(NULL, sets, 1, &c));
    CHECK_OK(td__loop_create(&loop));
    td__tracker_config tc = {.loop = loop, .config = c, .self = "tandem", .event = hear};
    CHECK_OK(td__tracker_find("kubernetes")->create(&tc, &t));
    td__deadline until = td__deadline_in_ms(60000);
    while (!is_over(&p) && !td__deadline_passed(until))
        CHECK_OK(td__loop_turn(loop, 50));
    CHECK(!p.wrong[0] && p.at == STEPS, "%d steps; %s", p.at, p.wrong);
    t->ops->destroy(t);
    td__loop_destroy(loop);
    td__config_destroy(c);
    http_server_stop(s);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(watches_go_on_and_begin_anew)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
