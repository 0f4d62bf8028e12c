/* Clients of a run with parameter servers (ps/outputs.h): what is sent comes back as outputs, in as
 * many messages as it takes; nonsense is refused with a text, and the next question answered; who
 * does not have the secret is not let in. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "coll/secret_file.h"
#include "net/greet.h"
#include "net/link.h"
#include "ps/outputs.h"
#include "support/check.h"

enum { ROWS = 100 * 1000, STEP = 7, PATIENCE_MS = 30 * 1000 };

static atomic_int asked, brought;

/* The sum of a sample's two inputs: 3 floats and 1. */
static td_status add(void *user, int64_t rows, const void *samples, size_t nbytes, void **out,
                     size_t *row_nbytes)
{
    const float *three = samples, *one = three + 3 * rows;
    (void)user;
    *row_nbytes = sizeof(float);
    if (nbytes != (size_t)rows * 4 * sizeof(float))
        return TD_FAIL(TD_EINVAL, "%zu bytes of %lld samples", nbytes, (long long)rows);
    float *sum = td__calloc((size_t)rows, sizeof *sum);
    for (int64_t i = 0; i < rows; i++)
        sum[i] = three[3 * i] + three[3 * i + 1] + three[3 * i + 2] + one[i];
    *out = sum;
    asked++;
    return TD_OK;
}

static td_status bring(void *user)
{
    (void)user;
    brought++;
    return TD_OK;
}

typedef struct server {
    td__ps_outputs *o;
    atomic_bool over;
    pthread_t thread;
} server;

static void *serve(void *arg)
{
    server *s = arg;
    while (!atomic_load(&s->over)) {
        CHECK_OK(td__ps_outputs_serve(s->o, STEP));
        sched_yield();
    }
    return NULL;
}

static void begin(server *s, const char *folder)
{
    *s = (server){.o = NULL};
    CHECK_OK(td__ps_outputs_create(
        &(td__ps_outputs_opts){.folder = folder, .params = bring, .outputs = add}, &s->o));
    CHECK_EQ_INT(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void end(server *s)
{
    atomic_store(&s->over, true);
    pthread_join(s->thread, NULL);
    td__ps_outputs_destroy(s->o);
}

static td_status sums(td__ps_live *l, int64_t rows)
{
    float *three = td__calloc((size_t)rows * 3, sizeof *three);
    float *one = td__calloc((size_t)rows, sizeof *one),
          *out = td__calloc((size_t)rows, sizeof *out);
    for (int64_t i = 0; i < rows; i++) {
        three[3 * i] = (float)i;
        three[3 * i + 2] = 2;
        one[i] = 1;
    }
    td_status st =
        td__ps_live_outputs(l, rows, 2, (const void *[]){three, one},
                            (size_t[]){3 * sizeof *three, sizeof *one}, sizeof *out, out);
    for (int64_t i = 0; !st && i < rows; i++)
        CHECK(out[i] == (float)i + 3, "output %lld is %g", (long long)i, (double)out[i]);
    td__free(three);
    td__free(one);
    td__free(out);
    return st;
}

TEST(outputs_come_back)
{
    server s;
    td__ps_live *l;
    const char *folder = check_tmpdir();
    begin(&s, folder);
    CHECK_OK(td__ps_live_open(folder, &l));
    CHECK_OK(sums(l, 1));
    CHECK_EQ_INT((int)td__ps_live_step(l), STEP);
    int before = asked;
    CHECK_OK(sums(l, ROWS)); /* 1.6 MB: two messages */
    CHECK_EQ_INT(asked - before, 2);
    CHECK(brought >= 2 && brought <= asked, "params were brought %d times", brought);
    td__ps_live_close(l);
    end(&s);
    CHECK_STATUS(td__ps_live_open(folder, &l), TD_EINVAL); /* the file is gone */
    check_tmpdir_remove();
}

/* What a client sends that has the secret, and nothing else right. */
static void send_nonsense(const char *folder, uint8_t kind, const void *data, size_t nbytes,
                          const char *want)
{
    char path[512], address[TD_ADDRESS_BYTES], text[256];
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    td__secret secret;
    td__conn conn;
    td__link link;
    td__link_msg m;
    snprintf(path, sizeof path, "%s/outputs", folder);
    CHECK_OK(td__secret_file_read(path, address, &secret));
    CHECK_OK(td__greet_connect(address, TD_HS_OUTPUTS, &secret, NULL, until, &conn));
    td__link_init_take(&link, conn);
    td__link_send(&link, kind, data, nbytes);
    while (!td__link_next(&link, &m)) {
        CHECK(!td__deadline_passed(until) && td__link_up(&link), "no answer to nonsense");
        td__socket_poll(link.conn.fd, false, until);
        td__link_fill(&link);
    }
    snprintf(text, sizeof text, "%.*s", (int)m.nbytes, (const char *)m.data);
    CHECK_EQ_INT(m.kind, 3);
    CHECK(strstr(text, want), "'%s' instead of '%s'", text, want);
    td__link_fini(&link);
}

TEST(nonsense_is_refused)
{
    server s;
    td__ps_live *l;
    td__conn conn;
    td__secret secret;
    char path[512], address[TD_ADDRESS_BYTES];
    const char *folder = check_tmpdir();
    begin(&s, folder);
    CHECK_OK(td__ps_live_open(folder, &l));
    send_nonsense(folder, 1, "abc", 3, "no question");
    send_nonsense(folder, 9, (uint64_t[]){1, 16, 0, 0}, 32, "no question");
    send_nonsense(folder, 1, (uint64_t[]){1, 17, 0, 0}, 32, "another length");
    send_nonsense(folder, 1, (uint64_t[]){0, 16, 0, 0}, 32, "no samples");
    send_nonsense(folder, 1, (uint64_t[]){UINT64_MAX, 16, 0, 0}, 32, "no samples");
    send_nonsense(folder, 1, (uint64_t[]){3, 16, 0, 0}, 32, "16 bytes of 3 samples");
    CHECK_OK(sums(l, 5)); /* others are answered all the while */
    td__ps_live_close(l);
    /* Another secret. */
    snprintf(path, sizeof path, "%s/outputs", folder);
    CHECK_OK(td__secret_file_read(path, address, &secret));
    secret.bytes[0] ^= 1;
    CHECK(td__greet_connect(address, TD_HS_OUTPUTS, &secret, NULL, td__deadline_in_ms(PATIENCE_MS),
                            &conn) != TD_OK,
          "a stranger was let in");
    end(&s);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(outputs_come_back),
                                       cmocka_unit_test(nonsense_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
