/* A run whose checkpoint an older version wrote is told, when it goes on, what of its job gives
 * other numbers since: one line, and none where nothing does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/sha256.h"
#include "support/check.h"
#include "tandem/log.h"
#include "tandem/train.h"

static const char TEXT[] = "name: old\n"
                           "model: [{linear: 8, act: relu}, linear]\n"
                           "data: {source: spirals, count: 120}\n"
                           "train: {batch: 16, steps: 6, optimizer: {name: adam, lr: 0.01}}\n"
                           "checkpoint: {every: 3}\n";

/* As it was before checkpoints said which arithmetic they are of: with the sha256 of the rest. */
static void make_old(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX];

    CHECK(root && json_is_integer(json_object_get(root, "arithmetic")), "%s", path);
    json_object_del(root, "arithmetic");
    json_object_del(root, "sha256");
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    CHECK_OK(td__sha256_of(text, strlen(text), digest));
    td__sha256_hex(digest, hex);
    json_object_set_new(root, "sha256", json_string(hex));
    CHECK_EQ_INT(json_dump_file(root, path, JSON_REAL_PRECISION(17)), 0);
    free(text);
    json_decref(root);
}

static char line[1024]; /* the last warning that speaks of an older version */
static int lines;

static void keep_line(void *user, td_log_level level, td_log_part part, const char *text)
{
    (void)user;
    (void)level;
    (void)part;
    if (!strstr(text, "older version"))
        return;
    lines++;
    snprintf(line, sizeof line, "%s", text);
}

static td_answer stop_at_3(void *user, const td_step_info *e)
{
    (void)user;
    return e->step == 3 ? TD_STOP : TD_CONTINUE;
}

/* Train 3 of 6 steps, go on. */
static void go_on(const char *const *sets, int n, bool old)
{
    td_job_opts o = {.run_dir = check_path("run"), .callbacks = {.step = stop_at_3}};
    td_trainer *t;
    td_job *j;

    CHECK_OK(td_job_parse(TEXT, "memory.yaml", &j));
    for (int i = 0; i < n; i++)
        CHECK_OK(td_job_set(j, sets[i]));
    CHECK_OK(td_trainer_from_job(j, &o, &t));
    CHECK_OK(td_trainer_fit(t, NULL));
    td_trainer_destroy(t);
    if (old)
        make_old(check_path("run/checkpoints/step-00000003/state.json"));
    o.resume = true;
    lines = 0;
    td_log_set_sink(keep_line, NULL);
    CHECK_OK(td_trainer_from_job(j, &o, &t));
    CHECK_EQ_INT(td_trainer_step(t), 3);
    CHECK_OK(td_trainer_fit(t, NULL));
    td_log_set_sink(NULL, NULL);
    td_trainer_destroy(t);
    td_job_destroy(j);
    check_tmpdir_remove();
}

TEST(what_has_changed_is_told)
{
    const char *const changed[] = {"loss.ignore=1", "train.schedule.name=cosine",
                                   "train.schedule.warmup_steps=10"};

    check_tmpdir();
    go_on(changed, 3, true);
    CHECK_EQ_INT(lines, 1);
    CHECK(strstr(line, "loss.ignore takes the mean over") && strstr(line, "warm-up longer than") &&
              !strstr(line, "npy") && !strstr(line, "ranks"),
          "%s", line);
    check_tmpdir();
    go_on(changed, 3, false);
    CHECK_EQ_INT(lines, 0);
    check_tmpdir();
    go_on(NULL, 0, true);
    CHECK_EQ_INT(lines, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_has_changed_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
