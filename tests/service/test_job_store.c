/* The store: records survive, ids are never used again, pages and filters, transactions, and how
 * long 10,000 jobs take. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "service/spec.h"
#include "service/store/store.h"
#include "support/check.h"

static char DIR[] = "/tmp/td-store-XXXXXX";
static char PATH[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(DIR, sizeof DIR, "/tmp/td-store-XXXXXX");
    assert_non_null(mkdtemp(DIR));
    snprintf(PATH, sizeof PATH, "%s/s.db", DIR);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const ENDS[] = {"", "-wal", "-shm"};

    for (int i = 0; i < TD_LEN(ENDS); i++) {
        char path[80];
        snprintf(path, sizeof path, "%s%s", PATH, ENDS[i]);
        unlink(path);
    }
    return rmdir(DIR);
}

static td__job_store *open_store(void)
{
    td__job_store *s;

    CHECK_OK(td__job_store_open(PATH, &(td__job_store_opts){0}, &s));
    return s;
}

static td__job_record *new_record(const char *spec)
{
    td__job_record *r = td__calloc(1, sizeof *r);

    assert_non_null(r);
    CHECK_OK(td__spec_parse(spec, strlen(spec), "test", &r->spec));
    r->message = td__strdup("");
    r->exit_status = -1;
    return r;
}

static int32_t add(td__job_store *s, const char *spec, const char *key)
{
    td__job_record *r = new_record(spec);

    CHECK_OK(td__job_store_insert(s, r, key));
    int32_t id = r->id;
    td__job_record_destroy(r);
    return id;
}

TEST(survives)
{
    td__job_store *s = open_store();
    td__job_record *r =
        new_record("{\"name\": \"a\", \"user\": \"ann\", \"labels\": {\"t\": \"1\"}}");

    r->submitted_ms = 5;
    CHECK_OK(td__job_store_insert(s, r, "key-1"));
    assert_int_equal(r->id, 1);
    r->state = TD_JOB_RUNNING;
    r->attempt = 2;
    r->started_ms = 77;
    snprintf(r->token, sizeof r->token, "job-1-2-abc");
    td__job_record_say(r, "it's %d", 3);
    r->data_bucket = td__strdup("b");
    CHECK_OK(td__job_store_update(s, r));
    CHECK_OK(td__job_store_commit(s));
    td__job_store_close(s);
    td__job_record_destroy(r);

    s = open_store();
    int32_t id;
    CHECK_OK(td__job_store_by_key(s, "ann", "key-1", &id));
    assert_int_equal(id, 1);
    CHECK_OK(td__job_store_by_key(s, "bob", "key-1", &id));
    assert_int_equal(id, 0);
    CHECK_OK(td__job_store_get(s, 1, &r));
    assert_int_equal(r->state, TD_JOB_RUNNING);
    assert_int_equal(r->attempt, 2);
    assert_int_equal(r->submitted_ms, 5);
    assert_int_equal(r->started_ms, 77);
    assert_string_equal(r->token, "job-1-2-abc");
    assert_string_equal(r->message, "it's 3");
    assert_string_equal(r->data_bucket, "b");
    assert_null(r->data_path);
    assert_string_equal(r->spec->user, "ann");
    assert_string_equal(td__pairs_get(&r->spec->labels, "t"), "1");
    td__job_record_destroy(r);
    CHECK_OK(td__job_store_get(s, 2, &r));
    assert_null(r);
    td__job_store_close(s);
}

/* Not even the id of the last one, deleted before a restart. */
TEST(ids_are_never_used_again)
{
    td__job_store *s = open_store();

    assert_int_equal(add(s, "{}", NULL), 1);
    assert_int_equal(add(s, "{}", NULL), 2);
    CHECK_OK(td__job_store_delete(s, 2));
    CHECK_OK(td__job_store_commit(s));
    td__job_store_close(s);
    s = open_store();
    assert_int_equal(add(s, "{}", NULL), 3);
    td__job_store_close(s); /* not committed: as if it had not been */
    s = open_store();
    assert_int_equal(add(s, "{}", NULL), 3);
    td__job_store_close(s);
}

typedef struct seen {
    int32_t ids[16];
    int n, most;
} seen;

static bool note(void *arg, const td__job_record *r)
{
    seen *v = arg;

    assert_true(v->n < TD_LEN(v->ids));
    v->ids[v->n++] = r->id;
    return !v->most || v->n < v->most;
}

TEST(filters)
{
    td__job_store *s = open_store();
    td__pair team = {"team", "nlp"};

    add(s, "{\"user\": \"ann\", \"name\": \"mnist-1\"}", NULL);
    add(s, "{\"user\": \"bob\", \"name\": \"mnist-2\", \"labels\": {\"team\": \"nlp\"}}", NULL);
    add(s, "{\"user\": \"ann\", \"name\": \"gpt\", \"labels\": {\"team\": \"nlp\", \"x\": \"y\"}}",
        NULL);
    td__job_record *r;
    CHECK_OK(td__job_store_get(s, 1, &r));
    r->state = TD_JOB_FAILED;
    CHECK_OK(td__job_store_update(s, r));
    td__job_record_destroy(r);
    const struct {
        td__job_filter f;
        int n;
        int32_t ids[4];
    } CASES[] = {
        {{0}, 3, {3, 2, 1}},
        {{.user = "ann"}, 2, {3, 1}},
        {{.name = "mnist*"}, 2, {2, 1}},
        {{.labels = {&team, 1}}, 2, {3, 2}},
        {{.labels = {&team, 1}, .user = "bob"}, 1, {2}},
        {{.states = 1u << TD_JOB_FAILED}, 1, {1}},
        {{.states = 1u << TD_JOB_FAILED | 1u << TD_JOB_QUEUED, .limit = 2}, 2, {3, 2}},
        {{.before = 3, .limit = 1}, 1, {2}},
        {{.user = "x' OR 1 --"}, 0, {0}},
    };
    for (int i = 0; i < TD_LEN(CASES); i++) {
        seen v = {0};
        CHECK_OK(td__job_store_list(s, &CASES[i].f, note, &v));
        assert_int_equal(v.n, CASES[i].n);
        for (int k = 0; k < v.n; k++)
            assert_int_equal(v.ids[k], CASES[i].ids[k]);
    }
    int64_t by_state[TD_JOB_STATE_COUNT];
    CHECK_OK(td__job_store_count(s, by_state));
    assert_int_equal(by_state[TD_JOB_QUEUED], 2);
    assert_int_equal(by_state[TD_JOB_FAILED], 1);
    td__job_store_close(s);
}

static bool note_event(void *arg, const td__job_event *e)
{
    td__text_printf(arg, "%lld:%d:%s:%s ", (long long)e->seq, e->job, td__event_kind_name(e->kind),
                    e->text);
    return true;
}

static bool note_value(void *arg, const char *key, const char *value)
{
    td__text_printf(arg, "%s=%s ", key, value);
    return true;
}

TEST(events_and_documents)
{
    td__job_store *s = open_store();
    td__text t = {0};
    char *value;
    int64_t n;

    for (int i = 1; i <= 3; i++) {
        td__job_event e = {.job = i % 2, .kind = TD_EVENT_NOTE, .text = i == 2 ? "two" : "odd"};
        CHECK_OK(td__job_store_event(s, &e));
        assert_int_equal(e.seq, i);
    }
    CHECK_OK(td__job_store_events(s, 1, 1, 0, note_event, &t));
    assert_string_equal(t.data, "3:1:note:odd ");
    td__text_clear(&t);
    CHECK_OK(td__job_store_put(s, "run", "b", "2"));
    CHECK_OK(td__job_store_put(s, "run", "a", "1"));
    CHECK_OK(td__job_store_put(s, "run", "a", "3"));
    CHECK_OK(td__job_store_put(s, "set", "a", "4"));
    CHECK_OK(td__job_store_values(s, "run", note_value, &t));
    assert_string_equal(t.data, "a=3 b=2 ");
    td__text_clear(&t);
    static const char *const KEYS[] = {"job-1", "job-1-1-a", "job-1-2-b", "job-10-1-c",
                                       "job-2-1-d"};
    for (size_t i = 0; i < TD_LEN(KEYS); i++)
        CHECK_OK(td__job_store_put(s, "ended", KEYS[i], "x"));
    CHECK_OK(td__job_store_values_below(s, "ended", "job-1-", note_value, &t));
    assert_string_equal(t.data, "job-1-1-a=x job-1-2-b=x ");
    CHECK_OK(td__job_store_take(s, "run", "a"));
    CHECK_OK(td__job_store_value(s, "run", "a", &value));
    assert_null(value);
    CHECK_OK(td__job_store_value(s, "set", "a", &value));
    assert_string_equal(value, "4");
    td__free(value);
    for (int i = 1; i < 4; i++) {
        CHECK_OK(td__job_store_number(s, "sweep", &n));
        assert_int_equal(n, i);
    }
    td__text_fini(&t);
    td__job_store_close(s);
}

/* A writer that dies in the middle of a transaction leaves nothing of it, and all that was
 * committed. */
static td_status die(td__points *p, td__point_kind kind, const char *op)
{
    (void)p;
    (void)kind;
    if (!strcmp(op, "commit"))
        _exit(7);
    return TD_OK;
}

TEST(killed_writer)
{
    td__points points = {die};
    td__job_store *s = open_store();

    add(s, "{\"name\": \"kept\"}", NULL);
    CHECK_OK(td__job_store_commit(s));
    td__job_store_close(s);
    pid_t pid = fork();
    if (pid == 0) {
        td__job_record *r = new_record("{\"name\": \"lost\"}");
        if (td__job_store_open(PATH, &(td__job_store_opts){.points = &points}, &s) ||
            td__job_store_insert(s, r, NULL) || td__job_store_commit(s))
            _exit(1);
        _exit(2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
    s = open_store();
    seen v = {0};
    CHECK_OK(td__job_store_list(s, &(td__job_filter){0}, note, &v));
    assert_int_equal(v.n, 1);
    td__job_store_close(s);
}

TEST(newer_schema_is_refused)
{
    td__job_store *s = open_store();

    td__job_store_close(s);
    FILE *f = fopen(PATH, "r+b"); /* user_version is at offset 60, big-endian */
    assert_non_null(f);
    fseek(f, 60, SEEK_SET);
    fwrite("\0\0\0\x63", 4, 1, f);
    fclose(f);
    assert_int_equal(td__job_store_open(PATH, &(td__job_store_opts){0}, &s), TD_EINVAL);
    assert_non_null(strstr(td_last_error(), "newer version of tandem"));
}

static bool count(void *arg, const td__job_record *r)
{
    *(int *)arg += r->spec->priority == 3;
    return true;
}

TEST(ten_thousand_jobs)
{
    enum { N = 10000 };
    td__job_store *s = open_store();
    td__job_record *r =
        new_record("{\"name\": \"test1\", \"algorithm\": \"intent-classification\", "
                   "\"dataset_id\": \"1\", \"priority\": 3, \"parameters\": "
                   "{\"LR\": \"4\", \"EPOCHS\": \"15\", \"BATCH_SIZE\": \"64\"}}");

    for (int i = 0; i < N; i++)
        CHECK_OK(td__job_store_insert(s, r, NULL));
    CHECK_OK(td__job_store_commit(s));
    td__job_record_destroy(r);
    td__job_store_close(s);
    uint64_t best = UINT64_MAX, opened = 0;
    for (int round = 0; round < 3; round++) {
        uint64_t begin = td__clock_ns();
        s = open_store();
        opened = td__clock_ns() - begin;
        int n = 0;
        begin = td__clock_thread_ns(); /* the machine may be busy */
        CHECK_OK(
            td__job_store_list(s, &(td__job_filter){.states = 1u << TD_JOB_QUEUED}, count, &n));
        uint64_t took = td__clock_thread_ns() - begin;
        assert_int_equal(n, N);
        best = took < best ? took : best;
        td__job_store_close(s);
    }
    print_message("%d queued jobs: opened in %.1f ms, listed in %.1f ms\n", N, (double)opened / 1e6,
                  (double)best / 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(best < 100 * 1000000u);
#endif
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIR(survives),          IN_DIR(ids_are_never_used_again),
        IN_DIR(filters),           IN_DIR(events_and_documents),
        IN_DIR(killed_writer),     IN_DIR(newer_schema_is_refused),
        IN_DIR(ten_thousand_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
