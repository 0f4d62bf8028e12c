/* Damaged checkpoints: flipped bits, truncated, missing and foreign files. A damaged one is never
 * loaded; the newest whole one is, with a warning. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/deadline.h"
#include "checkpoint/checkpoint_impl.h"
#include "checkpoint/names.h"
#include "support/check.h"
#include "support/checkpoints.h"
#include "tandem/log.h"

static const char *const FILES[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
enum { N_FILES = 3, OLD = 10, NEW = 20 };

static int warnings;

static void count_warnings(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)line;
    warnings += level == TD_LOG_WARN && part == TD_LOG_PART_TRAIN;
}

static const char *dir;

static int two_checkpoints(void **state)
{
    (void)state;
    dir = check_tmpdir();
    CHECK_OK(save_checkpoint(dir, 3, OLD, 0, true));
    CHECK_OK(save_checkpoint(dir, 3, NEW, 0, false));
    CHECK_EQ_INT(load_checkpoint(dir, 1, NULL), NEW);
    warnings = 0;
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    check_tmpdir_remove();
    return 0;
}

static const char *path_of(int step, const char *file)
{
    char name[128];
    snprintf(name, sizeof name, "step-%08d/%s", step, file);
    return check_path(name);
}

/* The newest, with what a person sees: the step, and whether a warning said that it is not the
 * latest. */
static uint64_t newest(void)
{
    warnings = 0;
    uint64_t step = load_checkpoint(dir, 1, NULL);
    CHECK((step != NEW) == (warnings > 0), "step %d with %d warnings", (int)step, warnings);
    return step;
}

/* Does it still say what it said? A blank may have become another, and the last digit of a number
 * one that stands for the same number. */
static bool says(const uint8_t *data, size_t nbytes, const json_t *was)
{
    json_t *now = json_loadb((const char *)data, nbytes, JSON_REJECT_DUPLICATES, NULL);
    bool same = now && json_equal(now, was);
    json_decref(now);
    return same;
}

TEST(flipped_bits)
{
    for (int f = 0; f < N_FILES; f++) {
        size_t nbytes;
        const char *path = path_of(NEW, FILES[f]);
        uint8_t *data = check_read_file(path, &nbytes);
        size_t stride = f == 2 ? 1 : nbytes / 40 + 1;
        json_t *was = f == 2 ? json_loadb((const char *)data, nbytes, 0, NULL) : NULL;
        for (size_t i = 0; i < nbytes; i += stride) {
            data[i] ^= (uint8_t)(1 << (i % 8));
            check_write_file(path, data, nbytes);
            uint64_t step = newest();
            CHECK(step == OLD || (f == 2 && says(data, nbytes, was)),
                  "%s: byte %zu of %zu was flipped and not noticed", FILES[f], i, nbytes);
            data[i] ^= (uint8_t)(1 << (i % 8));
        }
        json_decref(was);
        check_write_file(path, data, nbytes);
        CHECK_EQ_INT(newest(), NEW);
        free(data);
    }
}

TEST(lengths)
{
    for (int f = 0; f < N_FILES; f++) {
        size_t nbytes;
        const char *path = path_of(NEW, FILES[f]);
        uint8_t *data = check_read_file(path, &nbytes); /* and a final 0 */
        size_t lengths[] = {0, 1, 7, 8, nbytes / 2, nbytes - 2, nbytes + 1};
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            check_write_file(path, data, lengths[i]);
            CHECK(newest() == OLD, "%s: %zu of %zu bytes", FILES[f], lengths[i], nbytes);
        }
        CHECK(unlink(path) == 0, "cannot remove %s", path);
        CHECK(newest() == OLD, "%s is missing", FILES[f]);
        CHECK(mkdir(path, 0777) == 0, "cannot make %s", path);
        CHECK(newest() == OLD, "%s is a directory", FILES[f]);
        CHECK(rmdir(path) == 0, "cannot remove %s", path);
        CHECK(symlink(FILES[f], path) == 0, "cannot link %s", path);
        CHECK(newest() == OLD, "%s is a link to itself", FILES[f]);
        CHECK(unlink(path) == 0, "cannot remove %s", path);
        check_write_file(path, data, nbytes);
        CHECK_EQ_INT(newest(), NEW);
        free(data);
    }
}

/* Files of another whole checkpoint, in the place of this one's. */
TEST(foreign_files)
{
    for (int f = 0; f < N_FILES - 1; f++) {
        size_t mine, theirs;
        void *a = check_read_file(path_of(NEW, FILES[f]), &mine);
        void *b = check_read_file(path_of(OLD, FILES[f]), &theirs);
        check_write_file(path_of(NEW, FILES[f]), b, theirs);
        CHECK(newest() == OLD, "%s of another step", FILES[f]);
        check_write_file(path_of(NEW, FILES[f]), a, mine);
        free(a);
        free(b);
    }
}

TEST(pointers)
{
    static const struct {
        const char *text;
        uint64_t step;
    } CASES[] = {
        {"step-00000010\n", OLD}, /* somebody went back by hand */
        {"", NEW},
        {"step-00000099\n", NEW},
        {"../../../etc/passwd\n", NEW},
        {"step-00000020/../step-00000010", NEW},
        {"\xff\xfe\xfd", NEW},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        check_write_file(check_path("latest"), CASES[i].text, strlen(CASES[i].text));
        uint64_t step = load_checkpoint(dir, 1, NULL);
        CHECK(step == CASES[i].step, "'%s' leads to step %d", CASES[i].text, (int)step);
    }
    unlink(check_path("latest"));
    CHECK_EQ_INT(load_checkpoint(dir, 1, NULL), NEW);
}

TEST(asking_by_name)
{
    td__checkpoint_info info;
    char run[256];

    CHECK_OK(td__checkpoint_find(dir, "best", &info));
    CHECK_EQ_INT(info.state.step, OLD);
    CHECK_OK(td__checkpoint_find(dir, "step-00000020", &info));
    CHECK_EQ_INT(info.state.step, NEW);
    snprintf(run, sizeof run, "%s", path_of(OLD, ""));
    CHECK_OK(td__checkpoint_find(run, NULL, &info));
    CHECK_EQ_INT(info.state.step, OLD);
    CHECK_STATUS(td__checkpoint_find(dir, "step-00000007", &info), TD_EINVAL);
    CHECK_STATUS(td__checkpoint_find(dir, "../x", &info), TD_EINVAL);
    CHECK_STATUS(td__checkpoint_find(check_path("nowhere"), NULL, &info), TD_EINVAL);
    check_write_file(path_of(OLD, FILES[0]), "x", 1);
    CHECK_STATUS(td__checkpoint_find(dir, "best", &info), TD_EPROTO);
    check_write_file(path_of(NEW, FILES[0]), "x", 1);
    CHECK_STATUS(td__checkpoint_find(dir, NULL, &info), TD_EPROTO);
    CHECK(td__checkpoint_any(dir) && !td__checkpoint_any(check_path("nowhere")), "any");
}

/* Numbers that no run can have come to, in a file whose sha256 is right. */
TEST(impossible_numbers)
{
    const char *path = path_of(NEW, FILES[2]);
    td__manifest good;
    CHECK_OK(td__manifest_read(&good, path));
    for (int i = 0;; i++) {
        td__manifest m = good;
        td__train_state *s = &m.state;
        if (i == 0)
            s->step = (uint64_t)UINT32_MAX + 1;
        else if (i == 1)
            s->epoch = (uint64_t)-1;
        else if (i == 2)
            s->batch_in_epoch = -1;
        else if (i == 3)
            s->batch = -32;
        else if (i == 4) /* their product is a place among the samples */
            s->batch_in_epoch = INT64_MAX / 2, s->batch = 3;
        else if (i == 5)
            s->samples = (uint64_t)INT64_MIN;
        else if (i == 6)
            s->best_step = (uint64_t)-2;
        else if (i == 7)
            s->valid_step = (uint64_t)-2;
        else if (i == 8)
            s->bad_validations = -1;
        else if (i == 9)
            m.optimizer_steps = (uint64_t)-1;
        else if (i == 10)
            m.file[0].nbytes = (uint64_t)-1;
        else
            break;
        CHECK_OK(td__manifest_write(&m, path));
        CHECK(newest() == OLD, "number %d is taken", i);
        CHECK_STATUS(td__manifest_read(&m, path), TD_EPROTO);
        CHECK(strstr(td_last_error(), "state.json") && !strchr(td_last_error(), '\n'), "%s",
              td_last_error());
    }
    CHECK_OK(td__manifest_write(&good, path));
    CHECK_EQ_INT(newest(), NEW);
}

/* A damaged checkpoint of a step that is reached again is replaced. */
TEST(damaged_ones_are_replaced)
{
    check_write_file(path_of(NEW, FILES[1]), "x", 1);
    CHECK_EQ_INT(newest(), OLD);
    CHECK_OK(save_checkpoint(dir, 3, NEW, 0, false));
    CHECK_EQ_INT(newest(), NEW);
}

TEST(newest_and_best_are_kept)
{
    for (uint64_t step = 30; step <= 80; step += 10)
        CHECK_OK(save_checkpoint(dir, 2, step, 0, step == 50));
    for (int step = 10; step <= 80; step += 10) {
        bool there = access(path_of(step, FILES[2]), F_OK) == 0;
        CHECK(there == (step == 50 || step >= 70), "step %d is %s", step, there ? "there" : "gone");
    }
}

/* A disk that does not answer, until it is told to. */
typedef struct stuck_disk {
    td__points base;
    const char *where;
    atomic_bool stands, goes_on;
    atomic_int later; /* points that were passed after it went on */
} stuck_disk;

static td_status stand_still(td__points *p, td__point_kind kind, const char *op)
{
    stuck_disk *s = (stuck_disk *)p;
    (void)kind;
    bool stuck = strcmp(op, s->where) == 0;
    if (!stuck && atomic_load(&s->goes_on))
        atomic_fetch_add(&s->later, 1);
    if (stuck)
        atomic_store(&s->stands, true);
    while (stuck && !atomic_load(&s->goes_on))
        poll(NULL, 0, 1);
    return TD_OK;
}

/* The disk outlives the thread that is left behind. */
static void leave_behind(stuck_disk *disk)
{
    saved_model s = saved_model_create();
    td__checkpointer *c;
    td__train_state state = saved_model_at(&s, 5, 0);
    CHECK_OK(td__checkpointer_create(check_tmpdir(), 3, &c));
    if (strcmp(disk->where, "remove") == 0) { /* there is something to be removed */
        CHECK_OK(td__checkpointer_save(c, &state, s.m.params, s.o, false));
        CHECK_OK(td__checkpointer_wait(c));
    }
    td__checkpointer_points(c, &disk->base);
    td__checkpointer_patience(c, 50);
    CHECK_OK(td__checkpointer_save(c, &state, s.m.params, s.o, false));
    CHECK_STATUS(td__checkpointer_wait(c), TD_ETIMEDOUT);
    CHECK(strstr(td_last_error(), "has not taken a checkpoint in 0.05 seconds"), "%s",
          td_last_error());
    td__checkpointer_destroy(c); /* returns: that is the test */
    saved_model_destroy(&s);     /* and with it the names of tensors */
    atomic_store(&disk->goes_on, true);
    td__deadline until = td__deadline_in_ms(60000); /* the thread cleans up after itself */
    while (access(check_path(".tmp-step-00000005"), F_OK) == 0 && !td__deadline_passed(until))
        poll(NULL, 0, 1);
    CHECK(access(check_path(".tmp-step-00000005"), F_OK) != 0, "half a checkpoint is still there");
}

TEST(a_disk_that_does_not_answer_is_not_waited_for_for_ever)
{
    static stuck_disk disk = {.base = {stand_still}, .where = "optimizer.safetensors"};
    leave_behind(&disk);
    CHECK(!td__checkpoint_any(check_tmpdir()), "a checkpoint that was given up became one");
    check_tmpdir_remove();
}

/* Whoever counts points may be gone with the run. */
TEST(nothing_of_the_run_is_used_after_it_gave_up_the_disk)
{
    static stuck_disk disk = {.base = {stand_still}, .where = "remove"};
    leave_behind(&disk);
    CHECK_EQ_INT(atomic_load(&disk.later), 0);
    check_tmpdir_remove();
}

/* A rank 0 that is stopped while it writes. */
static td__checkpointer *stopped_at(stuck_disk *disk, saved_model *s)
{
    td__checkpointer *c;
    td__train_state state = saved_model_at(s, 5, 0);
    dir = check_tmpdir();
    CHECK_OK(td__checkpointer_create(dir, 1, &c));
    td__checkpointer_points(c, &disk->base);
    CHECK_OK(td__checkpointer_save(c, &state, s->m.params, s->o, true));
    for (td__deadline until = td__deadline_in_ms(60000); !atomic_load(&disk->stands);) {
        CHECK(!td__deadline_passed(until), "%s was not reached", disk->where);
        poll(NULL, 0, 1);
    }
    return c;
}

/* It goes on, though another process writes there by now. */
static void resume_stopped(stuck_disk *disk, td__checkpointer *c)
{
    atomic_store(&disk->goes_on, true);
    CHECK_STATUS(td__checkpointer_wait(c), TD_EABORTED);
    CHECK(strstr(td_last_error(), "another process has taken over"), "%s", td_last_error());
    td__checkpointer_destroy(c);
}

TEST(a_stopped_writer_that_resumes_changes_nothing)
{
    static const char *const WHERE[] = {"optimizer.safetensors", "rename", "best", "latest"};
    char name[TD__STEP_NAME];
    for (int i = 0; i < TD_LEN(WHERE); i++) {
        stuck_disk disk = {.base = {stand_still}, .where = WHERE[i]};
        saved_model s = saved_model_create();
        td__checkpointer *c = stopped_at(&disk, &s);
        check_write_file(check_path("writer"), "another one\n", 12);
        resume_stopped(&disk, c);
        CHECK((access(check_path("step-00000005"), F_OK) == 0) == (i > 1), "stopped at %s",
              WHERE[i]);
        CHECK(td__checkpoint_pointer(dir, "best", name) == (i > 2), "stopped at %s: best",
              WHERE[i]);
        CHECK(!td__checkpoint_pointer(dir, "latest", name), "stopped at %s: latest", WHERE[i]);
        saved_model_destroy(&s);
        check_tmpdir_remove();
    }
}

TEST(a_writer_that_holds_the_lock_is_replaced)
{
    stuck_disk disk = {.base = {stand_still}, .where = "latest"};
    saved_model s = saved_model_create();
    td__checkpointer *leads, *c = stopped_at(&disk, &s);
    char latest[TD__STEP_NAME];
    warnings = 0;
    CHECK_OK(td__checkpointer_take_over(dir, 1, &leads));
    CHECK_EQ_INT(warnings, 1);
    td__train_state state = saved_model_at(&s, 6, 0);
    CHECK_OK(td__checkpointer_save(leads, &state, s.m.params, s.o, true));
    CHECK_OK(td__checkpointer_wait(leads));
    resume_stopped(&disk, c);
    CHECK(td__checkpoint_pointer(dir, "latest", latest) && strcmp(latest, "step-00000006") == 0,
          "latest is not what was written last");
    CHECK_EQ_INT(load_checkpoint(dir, 1, NULL), 6);
    state = saved_model_at(&s, 7, 0);
    CHECK_OK(td__checkpointer_save(leads, &state, s.m.params, s.o, false));
    CHECK_OK(td__checkpointer_wait(leads));
    td__checkpointer_destroy(leads);
    saved_model_destroy(&s);
    check_tmpdir_remove();
}

TEST(wrong_places_are_refused)
{
    td__checkpointer *c, *second;
    check_write_file(check_path("file"), "x", 1);
    CHECK_STATUS(td__checkpointer_create(check_path("file"), 1, &c), TD_EINVAL);
    CHECK_STATUS(td__checkpointer_create("/proc/nowhere", 1, &c), TD_EINVAL);
    CHECK_OK(td__checkpointer_create(dir, 1, &c));
    CHECK_STATUS(td__checkpointer_create(dir, 1, &second), TD_EINVAL);
    CHECK(strstr(td_last_error(), "another run"), "%s", td_last_error());
    td__checkpointer_destroy(c);
}

/* Weights that are not numbers are not saved over good ones, and the run hears of it. */
TEST(bad_weights_are_not_saved)
{
    saved_model s = saved_model_create();
    td__checkpointer *c;
    td__checkpoint_event e;
    bool done;
    td__train_state state = saved_model_at(&s, 30, 0);
    CHECK_OK(td__checkpointer_create(dir, 1, &c));
    td_params_block(s.m.params, NULL)[3] *= 1e38f * 1e10f;
    CHECK_OK(td__checkpointer_save(c, &state, s.m.params, s.o, false));
    CHECK_STATUS(td__checkpointer_wait(c), TD_EINVAL);
    CHECK(strstr(td_last_error(), "has NaN or Inf"), "%s", td_last_error());
    CHECK_STATUS(td__checkpointer_poll(c, &done, &e), TD_EINVAL);
    CHECK_STATUS(td__checkpointer_save(c, &state, s.m.params, s.o, false), TD_EINVAL);
    td__checkpointer_destroy(c);
    saved_model_destroy(&s);
    CHECK_EQ_INT(newest(), NEW);
}

TEST(another_model_or_optimizer_is_refused)
{
    td__checkpoint_info info;
    saved_model s = saved_model_create();
    td_optimizer *sgd;
    optim_model other = optim_table_create();
    CHECK_OK(td__checkpoint_find(dir, NULL, &info));
    CHECK_OK(td_optimizer_create(&(td_optim_opts){.name = "sgd"}, s.m.params, &sgd));
    CHECK_STATUS(td__checkpoint_load(&info, s.m.params, sgd), TD_EINVAL);
    CHECK(strstr(td_last_error(), "adam") && strstr(td_last_error(), "sgd"), "%s", td_last_error());
    CHECK_STATUS(td__checkpoint_load(&info, other.params, NULL), TD_EINVAL);
    CHECK_OK(td__checkpoint_load(&info, s.m.params, NULL)); /* weights alone */
    td_optimizer_destroy(sgd);
    optim_model_destroy(&other);
    saved_model_destroy(&s);
}

#define WITH_TWO(test) cmocka_unit_test_setup_teardown(test, two_checkpoints, remove_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TWO(flipped_bits),
        WITH_TWO(lengths),
        WITH_TWO(foreign_files),
        WITH_TWO(impossible_numbers),
        WITH_TWO(pointers),
        WITH_TWO(asking_by_name),
        WITH_TWO(damaged_ones_are_replaced),
        WITH_TWO(newest_and_best_are_kept),
        cmocka_unit_test(a_disk_that_does_not_answer_is_not_waited_for_for_ever),
        cmocka_unit_test(nothing_of_the_run_is_used_after_it_gave_up_the_disk),
        cmocka_unit_test(a_stopped_writer_that_resumes_changes_nothing),
        cmocka_unit_test(a_writer_that_holds_the_lock_is_replaced),
        WITH_TWO(wrong_places_are_refused),
        WITH_TWO(bad_weights_are_not_saved),
        WITH_TWO(another_model_or_optimizer_is_refused),
    };
    td_log_set_sink(count_warnings, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
