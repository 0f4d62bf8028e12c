/* Trackers over other systems (cluster.h) with a system that the test plays: what delays one group
 * delays no other, output that cannot be had is waited for, what ended members leave is removed,
 * and one call of squeue serves all groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "rpc/loop.h"
#include "service/config.h"
#include "service/spec.h"
#include "service/track/cluster.h"
#include "service/track/command.h"
#include "service/track/slurm_list.h"
#include "support/check.h"

enum { GROUPS = 40, DEADLINE_MS = 60000 };

/* A group "g-N" runs until it gets a signal; one called "slow-N" takes for ever to start; the
 * members of "queue-N" wait, all of them but the first `placed` in the queue. */
typedef struct played {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped, signalled[GROUPS];
    int outages; /* output() meets so many */
    int outputs, tidied, forgotten;
    int placed, looks;
} played;

static played world;

static td_status open_world(const td__tracker_config *c, void **out)
{
    (void)c;
    world = (played){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    *out = &world;
    return TD_OK;
}

static void close_world(void *s)
{
    (void)s;
}

static void stop_world(void *s)
{
    played *w = s;
    pthread_mutex_lock(&w->lock);
    w->stopped = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static int number_of(const char *token)
{
    return (int)strtol(strchr(token, '-') + 1, NULL, 10);
}

static td_status start(void *s, const td__launch *l)
{
    played *w = s;
    if (l->g.token[0] != 's')
        return TD_OK;
    pthread_mutex_lock(&w->lock);
    while (!w->stopped)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return TD_EABORTED;
}

static td_status look(void *s, const td__launch *l, td__seen *seen)
{
    played *w = s;
    pthread_mutex_lock(&w->lock);
    bool over = w->signalled[number_of(l->g.token)], done = l->g.token[0] == 'd';
    w->looks++;
    for (int i = 0; i < l->members && l->g.token[0] == 'q'; i++)
        seen[i] = (td__seen){
            .state = TD_SEEN_WAITING, .queued = i >= w->placed, .text = "ImagePullBackOff: no"};
    if (l->g.token[0] == 'q') {
        pthread_mutex_unlock(&w->lock);
        return TD_OK;
    }
    seen[0] = (td__seen){.state = over || done ? TD_SEEN_ENDED : TD_SEEN_RUNNING,
                         .exit_status = over ? 143 : 0};
    pthread_mutex_unlock(&w->lock);
    return TD_OK;
}

static td_status signal_it(void *s, const td__launch *l, int member, td__track_signal what)
{
    played *w = s;
    (void)member, (void)what;
    pthread_mutex_lock(&w->lock);
    w->signalled[number_of(l->g.token)] = true;
    pthread_mutex_unlock(&w->lock);
    return TD_OK;
}

static td_status output(void *s, const td__launch *l, int member, bool follow,
                        td__cluster_sink sink, void *user)
{
    played *w = s;
    (void)l, (void)member, (void)follow;
    pthread_mutex_lock(&w->lock);
    bool outage = w->outputs++ < w->outages;
    pthread_mutex_unlock(&w->lock);
    if (outage)
        return TD_FAIL(TD_EPEER, "nobody answers");
    sink(user, "said\n", 5);
    return TD_OK;
}

static td_status tidy(void *s, const td__launch *l)
{
    (void)l;
    ((played *)s)->tidied++;
    return TD_OK;
}

static td_status forget(void *s, const char *token)
{
    (void)token;
    ((played *)s)->forgotten++;
    return TD_OK;
}

static const td__cluster_ops OPS = {.open = open_world,
                                    .close = close_world,
                                    .stop = stop_world,
                                    .start = start,
                                    .look = look,
                                    .signal = signal_it,
                                    .output = output,
                                    .tidy = tidy,
                                    .forget = forget,
                                    .shared_dir = true,
                                    .look_every_ms = 50};

extern const td__tracker_ops td__tracker_played;
TD_CLUSTER_TRACKER(played, "played", "groups of a test", OPS, .own_capacity = false);

typedef struct rig {
    td__loop *loop;
    td__tracker *t;
    td__service_config *config;
    td__job_spec *spec;
    char dir[64];
    int started, exited, forgotten, unsaved, pending, placed;
    int exit_status;
    char text[1024];
} rig;

static void on_event(void *arg, const td__track_event *e)
{
    rig *r = arg;
    r->started += e->kind == TD_TRACK_STARTED;
    r->exited += e->kind == TD_TRACK_EXITED;
    r->unsaved += e->kind == TD_TRACK_EXITED && e->unsaved;
    r->forgotten += e->kind == TD_TRACK_FORGOTTEN;
    if (e->kind == TD_TRACK_EXITED) {
        r->exit_status = e->exit_status;
        snprintf(r->text, sizeof r->text, "%s", e->text ? e->text : "");
    }
    r->pending += e->kind == TD_TRACK_PENDING;
    r->placed += e->kind == TD_TRACK_PLACED;
}

static void set_up_with(rig *r, const char *spec)
{
    *r = (rig){.dir = "/tmp/td-cluster-XXXXXX"};
    assert_non_null(mkdtemp(r->dir));
    CHECK_OK(td__loop_create(&r->loop));
    CHECK_OK(td__config_load(NULL, NULL, 0, &r->config));
    CHECK_OK(td__spec_parse(spec, strlen(spec), "spec", &r->spec));
    td__tracker_config c = {
        .loop = r->loop, .config = r->config, .self = "", .event = on_event, .arg = r};
    CHECK_OK(td__tracker_played.create(&c, &r->t));
}

static void set_up(rig *r)
{
    set_up_with(r, "{\"grace_s\": 600}");
}

static void tear_down(rig *r)
{
    const char *argv[] = {"rm", "-rf", r->dir, NULL};

    r->t->ops->destroy(r->t);
    td__loop_destroy(r->loop);
    td__config_destroy(r->config);
    td__spec_destroy(r->spec);
    CHECK_OK(td__command(
        &(td__command_opts){.argv = argv, .until = td__deadline_in_ms(DEADLINE_MS)}, NULL));
}

static void begin(rig *r, const char *name, int number)
{
    static const char *const NONE[] = {NULL};
    char token[32];

    snprintf(token, sizeof token, "%s-%d", name, number);
    r->t->ops->start(r->t, &(td__group){.token = token,
                                        .job = 1,
                                        .spec = r->spec,
                                        .dir = r->dir,
                                        .env = NONE,
                                        .command = NONE,
                                        .image = ""});
}

static void wait_for(rig *r, const int *counter, int least, const char *what)
{
    td__deadline until = td__deadline_in_ms(DEADLINE_MS);

    while (*counter < least) {
        CHECK(!td__deadline_passed(until), "%d %s, not %d", *counter, what, least);
        CHECK_OK(td__loop_turn(r->loop, 100));
    }
}

/* As many starts as there can be calls of that kind never end: a group that runs is seen, and
 * stopped, and its output fetched all the same. */
TEST(slow_starts_delay_no_other_group)
{
    rig r;

    set_up(&r);
    begin(&r, "g", 0);
    wait_for(&r, &r.started, 1, "have started");
    for (int i = 1; i < GROUPS; i++)
        begin(&r, "slow", i);
    r.t->ops->signal(r.t, "g-0", TD_TRACK_ALL, TD_TRACK_STOP);
    wait_for(&r, &r.exited, 1, "have ended");
    tear_down(&r);
}

/* Its output is fetched, then what it needs no more goes; the answer to forget() is told. */
TEST(ended_groups_are_tidied_and_forgotten)
{
    rig r;

    set_up(&r);
    world.outages = 1;
    begin(&r, "g", 0);
    wait_for(&r, &r.started, 1, "have started");
    r.t->ops->signal(r.t, "g-0", TD_TRACK_ALL, TD_TRACK_STOP);
    wait_for(&r, &r.exited, 1, "have ended");
    CHECK(world.outputs == 2 && world.tidied == 1 && r.unsaved == 0,
          "%d calls for output, tidied %d times, %d unsaved", world.outputs, world.tidied,
          r.unsaved);
    r.t->ops->forget(r.t, "g-0");
    r.t->ops->forget(r.t, "g-0"); /* asked again before there is an answer */
    wait_for(&r, &r.forgotten, 1, "are forgotten");
    assert_int_equal(world.forgotten, 1);
    tear_down(&r);
}

static int looks_now(void)
{
    pthread_mutex_lock(&world.lock);
    int n = world.looks;
    pthread_mutex_unlock(&world.lock);
    return n;
}

/* A group that has half of what it needs is being started: only one that has nothing waits without
 * end, and is looked at ever more seldom. */
TEST(half_of_a_group_does_not_wait)
{
    rig r;

    set_up_with(&r, "{\"resources\": {\"members\": 2}}");
    begin(&r, "queue", 0);
    wait_for(&r, &r.pending, 1, "are pending");
    assert_int_equal(r.placed, 0);
    uint64_t begun = td__clock_ns();
    td__deadline until = td__deadline_in_ms(DEADLINE_MS);
    while (looks_now() < 5) {
        CHECK(!td__deadline_passed(until), "%d looks", looks_now());
        CHECK_OK(td__loop_turn(r.loop, 100));
    }
    uint64_t ms = (td__clock_ns() - begun) / 1000000;
    CHECK(ms >= 600, "5 looks in %" PRIu64 " ms", ms); /* 50, 100, 200, 400 */
    pthread_mutex_lock(&world.lock);
    world.placed = 1;
    pthread_mutex_unlock(&world.lock);
    wait_for(&r, &r.placed, 1, "are placed");
    assert_int_equal(r.pending, 1);
    tear_down(&r);
}

/* "done-1" has succeeded, and left an artifact; its `attempts` leads somewhere else. */
TEST(lists_do_not_follow_links)
{
    char path[128], others[128];
    rig r;

    set_up(&r);
    snprintf(path, sizeof path, "%s/artifacts", r.dir);
    snprintf(others, sizeof others, "%s/others", r.dir);
    assert_int_equal(mkdir(path, 0700) | mkdir(others, 0700), 0);
    snprintf(path, sizeof path, "%s/artifacts/a\tb", r.dir);
    fclose(fopen(path, "w"));
    begin(&r, "done", 1);
    wait_for(&r, &r.exited, 1, "have ended");
    snprintf(path, sizeof path, "%s/attempts/done-1/artifacts", r.dir);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(r.exit_status, 0);
    assert_string_equal(
        r.text, "Exit code 0; left out of its artifacts: a\\x09b: its name has control characters");
    snprintf(path, sizeof path, "%s/attempts", r.dir);
    snprintf(others, sizeof others, "%s/before", r.dir);
    assert_int_equal(rename(path, others), 0);
    assert_int_equal(symlink("others", path), 0);
    begin(&r, "done", 2);
    wait_for(&r, &r.exited, 2, "have ended");
    assert_int_equal(r.exit_status, 1);
    assert_non_null(strstr(r.text, "its artifacts: "));
    snprintf(path, sizeof path, "%s/others/done-2", r.dir);
    assert_int_not_equal(access(path, F_OK), 0);
    tear_down(&r);
}

/* ---- squeue ---- */

static uint64_t clock_ns = 1;
static int asked;

static uint64_t played_clock(void)
{
    return clock_ns;
}

static td_status ask(void *arg, td__text *out)
{
    asked++;
    td__text_add(out, arg);
    return TD_OK;
}

static const char *state_of(td__slurm_list *s, const char *name)
{
    static char text[64];
    td__text out = {0};

    CHECK_OK(td__slurm_list_find(s, name, &out));
    snprintf(text, sizeof text, "%s", out.data ? out.data : "");
    td__text_fini(&out);
    return text;
}

TEST(one_call_of_squeue_is_for_all_groups)
{
    static char said[] = "job-1-1-aa|RUNNING|None|7\njob-11-1-aa|PENDING|Priority|8\n";
    char name[32];
    td__slurm_list *s;

    CHECK_OK(td__slurm_list_create(ask, played_clock, said, &s));
    assert_string_equal(state_of(s, "job-1-1-aa"), "RUNNING|None|7");
    assert_string_equal(state_of(s, "job-11-1-aa"), "PENDING|Priority|8");
    assert_string_equal(state_of(s, "job-1-1-a"), "");
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "job-%d-1-bb", i);
        assert_string_equal(state_of(s, name), "");
    }
    assert_int_equal(asked, 1);
    clock_ns += 1000000000;
    state_of(s, "job-1-1-aa");
    state_of(s, "job-11-1-aa");
    assert_int_equal(asked, 2);
    td__slurm_list_changed(s); /* a job was submitted: the old answer does not know it */
    state_of(s, "job-1-1-aa");
    state_of(s, "job-11-1-aa");
    assert_int_equal(asked, 3);
    td__slurm_list_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_starts_delay_no_other_group),
        cmocka_unit_test(ended_groups_are_tidied_and_forgotten),
        cmocka_unit_test(half_of_a_group_does_not_wait),
        cmocka_unit_test(lists_do_not_follow_links),
        cmocka_unit_test(one_call_of_squeue_is_for_all_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
