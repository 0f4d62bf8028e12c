/* Checkpoints and crashes: a child saves one and dies at its nth call to the file system (or the
 * call fails), for every n. Afterwards a whole checkpoint always loads, exactly as the old or the
 * new one was saved, and the next run can save again and leaves nothing behind.
 *
 * The program is linked with --wrap for each of these calls (CMakeLists.txt), so that the library
 * itself has no hook. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "support/checkpoints.h"
#include "tandem/log.h"

/* ---- The calls ------------------------------------------------------------------------------- */

typedef enum what {
    KILL,  /* as by SIGKILL: before the call; a write is done by half */
    POWER, /* the machine goes off: what was written but not fsynced is lost, too */
    FULL,  /* this call and all later ones that need space fail: ENOSPC */
    ERROR, /* this call fails: EIO */
    WHAT_COUNT
} what;

enum { DIED = 77, REFUSED, SURVIVED, DIRTY_MAX = 32 };

static what mode;
static atomic_int calls;
static int armed; /* number of the call; 0: off */

/* Files with bytes that were not fsynced. */
static int dirty[DIRTY_MAX], n_dirty;

static void note_write(int fd)
{
    for (int i = 0; i < n_dirty; i++)
        if (dirty[i] == fd)
            return;
    if (n_dirty < DIRTY_MAX)
        dirty[n_dirty++] = fd;
}

static void note_sync(int fd)
{
    for (int i = 0; i < n_dirty; i++)
        if (dirty[i] == fd)
            dirty[i--] = dirty[--n_dirty];
}

static void die(void)
{
    for (int i = 0; mode == POWER && i < n_dirty; i++)
        if (ftruncate(dirty[i], 3) != 0)
            _exit(1);
    _exit(DIED);
}

/* Is this the call? Then die, or say that it fails. */
static bool strikes(bool needs_space)
{
    if (!armed)
        return false;
    int n = atomic_fetch_add(&calls, 1) + 1;
    if (n < armed || (mode != FULL && n > armed))
        return false;
    if (mode == KILL || mode == POWER)
        die();
    if (mode == FULL && !needs_space)
        return false;
    errno = mode == FULL ? ENOSPC : EIO;
    return true;
}

#define REAL(result, name, args) \
    result __real_##name args;   \
    result __wrap_##name args;   \
    result __wrap_##name args

REAL(ssize_t, write, (int fd, const void *data, size_t nbytes))
{
    if (armed && (mode == KILL || mode == POWER) && atomic_load(&calls) + 1 == armed) {
        note_write(fd);
        if (__real_write(fd, data, nbytes / 2) < 0)
            _exit(1);
    }
    if (strikes(true))
        return -1;
    note_write(fd);
    return __real_write(fd, data, nbytes);
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (strikes(true))
        return -1;
    note_sync(fd); /* no more than that: the disk need not take part, and would take a minute */
    return 0;
}

REAL(int, close, (int fd))
{
    if (armed && mode == POWER) { /* what is lost is lost, also after close */
        for (int i = 0; i < n_dirty; i++)
            if (dirty[i] == fd)
                dirty[i] = dup(fd);
    }
    return __real_close(fd);
}

REAL(int, rename, (const char *from, const char *to))
{
    return strikes(true) ? -1 : __real_rename(from, to);
}

static bool no_exchange; /* the file system cannot exchange two names, as NFS */

REAL(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags))
{
    if (no_exchange && flags) {
        errno = EINVAL;
        return -1;
    }
    return strikes(true) ? -1 : __real_renameat2(a, from, b, to, flags);
}

REAL(int, mkdir, (const char *path, mode_t bits))
{
    return strikes(true) ? -1 : __real_mkdir(path, bits);
}

REAL(int, unlink, (const char *path))
{
    return strikes(false) ? -1 : __real_unlink(path);
}

REAL(int, unlinkat, (int dir, const char *path, int flags))
{
    return strikes(false) ? -1 : __real_unlinkat(dir, path, flags);
}

REAL(int, rmdir, (const char *path))
{
    return strikes(false) ? -1 : __real_rmdir(path);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t bits = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return (flags & O_CREAT) && strikes(true) ? -1 : __real_open(path, flags, bits);
}

/* ---- Children -------------------------------------------------------------------------------- */

typedef struct save {
    int keep;
    uint64_t step;
    int variant;
    bool best;
} save;

/* Save with the nth call struck: 0 (there was no such call), REFUSED with a text, or SURVIVED
 * (saved all the same). */
static int save_struck(const char *dir, const save *s, what m, int nth)
{
    mode = m;
    n_dirty = 0;
    atomic_store(&calls, 0);
    armed = nth;
    td_status st = save_checkpoint(dir, s->keep, s->step, s->variant, s->best);
    armed = 0;
    if (st)
        return *td_last_error() ? REFUSED : 1;
    return nth && atomic_load(&calls) >= nth ? SURVIVED : 0;
}

/* The same in a child, which dies of some calls: DIED. */
static int in_child(const char *dir, const save *s, what m, int nth)
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0, "cannot fork: %s", strerror(errno));
    if (pid == 0)
        _exit(save_struck(dir, s, m, nth));
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "the child ended with %d", status);
    return WEXITSTATUS(status);
}

static void must_save(const char *dir, const save *s)
{
    CHECK_OK(save_checkpoint(dir, s->keep, s->step, s->variant, s->best));
}

/* Copy a directory with directories of files in it. */
static void copy_tree(const char *from, const char *to)
{
    DIR *d = opendir(from);
    CHECK(d, "cannot read %s", from);
    CHECK(mkdir(to, 0777) == 0, "cannot make %s", to);
    for (const struct dirent *e; (e = readdir(d));) {
        char a[512], b[512];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(a, sizeof a, "%s/%s", from, e->d_name);
        snprintf(b, sizeof b, "%s/%s", to, e->d_name);
        if (e->d_type == DT_DIR) {
            copy_tree(a, b);
            continue;
        }
        size_t nbytes;
        void *data = check_read_file(a, &nbytes);
        check_write_file(b, data, nbytes);
        free(data);
    }
    closedir(d);
}

/* Names in dir, for "nothing is left behind". */
static int count_names(const char *dir, const char *prefix)
{
    int n = 0;
    DIR *d = opendir(dir);
    CHECK(d, "cannot read %s", dir);
    for (const struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
             strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(d);
    return n;
}

/* The step of the checkpoint that is marked as the best; 0: none is. */
static uint64_t best_of(const char *dir)
{
    td__checkpoint_info info;
    return td__checkpoint_find(dir, "best", &info) ? 0 : info.state.step;
}

/* The next run saves as if nothing had happened, and nothing half written stays. */
static void goes_on(const char *dir)
{
    static const save NEXT = {1, 30, 0, false};
    must_save(dir, &NEXT);
    CHECK_EQ_INT(load_checkpoint(dir, 1, NULL), 30);
    int pointers = count_names(dir, "latest") + count_names(dir, "best");
    CHECK(count_names(dir, "") == count_names(dir, "step-") + pointers && pointers <= 2 &&
              count_names(dir, "step-") <= 2,
          "%d names are left in %s", count_names(dir, ""), dir);
}

/* ---- Scenarios ------------------------------------------------------------------------------- */

typedef struct scenario {
    const char *name;
    save before[3];
    int n_before;
    save now;
    bool no_exchange;
} scenario;

static const scenario SCENARIOS[] = {
    {"a second checkpoint", {{3, 10, 0, false}}, 1, {3, 20, 0, false}, false},
    {"the same step again", {{3, 20, 0, false}}, 1, {3, 20, 1, false}, false},
    {"the same step again without exchange", {{3, 20, 0, false}}, 1, {3, 20, 1, false}, true},
    {"a new best, others removed",
     {{3, 5, 0, true}, {3, 8, 0, false}, {3, 10, 0, false}},
     3,
     {1, 20, 0, true},
     false},
};

static void walk(const scenario *s, what m)
{
    int n = 0, status;
    char before[256], dir[256];

    snprintf(before, sizeof before, "%s/before", check_tmpdir());
    no_exchange = s->no_exchange;
    for (int i = 0; i < s->n_before; i++)
        must_save(before, &s->before[i]);
    do {
        int variant = 0;
        snprintf(dir, sizeof dir, "%s/%d", check_path("."), ++n);
        copy_tree(before, dir);
        bool kills = m == KILL || m == POWER;
        status = (kills ? in_child : save_struck)(dir, &s->now, m, n);
        CHECK(status == 0 || (status == DIED) == kills, "%s, call %d: it ended with %d", s->name, n,
              status);
        CHECK(status != 1, "%s, call %d: refused without a text", s->name, n);
        uint64_t step = load_checkpoint(dir, 2, &variant);
        const save *old = &s->before[s->n_before - 1];
        bool is_old = step == old->step && variant == old->variant;
        bool is_new = step == s->now.step && variant == s->now.variant;
        CHECK(is_old || is_new, "%s, call %d: step %d of variant %d was loaded", s->name, n,
              (int)step, variant);
        CHECK(is_new || (status != 0 && status != SURVIVED), "%s, call %d: saved, but not loaded",
              s->name, n);
        /* A run that goes on from it knows it as its best, and will not mark it any more. */
        CHECK(!is_new || !s->now.best || best_of(dir) == step, "%s, call %d: the best is step %d",
              s->name, n, (int)best_of(dir));
        goes_on(dir);
    } while (status != 0 && n < 500);
    no_exchange = false;
    check_tmpdir_remove();
    CHECK(status == 0 && n > 15, "%s: %d calls", s->name, n);
}

#define WALK(name, m)                                                     \
    TEST(name)                                                            \
    {                                                                     \
        for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++) \
            walk(&SCENARIOS[i], m);                                       \
    }
WALK(killed_at_any_call, KILL)
WALK(power_lost_at_any_call, POWER)
WALK(disk_full_from_any_call_on, FULL)
WALK(any_call_fails_once, ERROR)

TEST(the_text_names_file_and_reason)
{
    static const save FIRST = {1, 10, 0, false};
    const char *dir = check_tmpdir();
    CHECK_EQ_INT(save_struck(dir, &FIRST, FULL, 3), REFUSED);
    CHECK(strstr(td_last_error(), dir) && strstr(td_last_error(), "No space left on device"), "%s",
          td_last_error());
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_any_call),
        cmocka_unit_test(power_lost_at_any_call),
        cmocka_unit_test(disk_full_from_any_call_on),
        cmocka_unit_test(any_call_fails_once),
        cmocka_unit_test(the_text_names_file_and_reason),
    };
    td_log_set_level(TD_LOG_ERROR); /* fallbacks are what this is about */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
