/* faults_sweep.c -- see faults_sweep.h.
 *
 * A quiet run on elastic ranks writes down every point that its ranks pass (faults "trace=PATH")
 * and has the digest that all others must have. Then each point of each step becomes a case: a run
 * of its own, in a directory of its own, whose rank is killed there. File operations of a
 * checkpoint are done beside the steps, so one of them may be counted in another step than in the
 * quiet run; the case then ends without a kill, or with one at another operation, and must still be
 * right. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "faults_sweep.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/text.h"
#include "launch/spawn.h"
#include "run/run_dir.h"

enum { STEPS = 3, CASE_MS = 60000, MOST_OUTPUT = 64 << 10, DIGEST = 64, OP = 24 };

static atomic_int stop; /* what signal handlers may reach is static */

static void on_signal(int sig)
{
    (void)sig;
    atomic_store(&stop, 1);
}

/* A point: operation number `count` of its kind in a step of a rank. */
typedef struct point {
    int rank;
    unsigned long long step; /* 0: before the first */
    char kind[8], op[OP];
    int count;
} point;

typedef struct sweep {
    const td__args *args;
    const char *job;
    int ranks;
    char dir[64], self[TD__PATH], digest[DIGEST + 1];
    point *points;
    int n, room;
    int differ, hits; /* hits: cases in which somebody was killed */
    double slowest;
    bool quiet, live;
} sweep;

/* ---- One run --------------------------------------------------------------------------------- */

static td_status make_argv(td__arena *arena, const sweep *s, const char *faults, const char *run,
                           const char ***out)
{
    const char *const *sets;
    int n_sets = td__args_values(s->args, "set", &sets), n = 0;
    const char **argv = *out = td__arena_alloc(arena, (size_t)(20 + 2 * n_sets) * sizeof *argv);

    if (!argv)
        return TD_FAIL(TD_ENOMEM, "no memory for a command line");
    argv[n++] = s->self;
    argv[n++] = "train";
    for (int i = 0; i < n_sets; i++) {
        argv[n++] = "--set";
        argv[n++] = sets[i];
    }
    argv[n++] = td__arena_printf(arena, "--set=train.steps=%d", STEPS);
    argv[n++] = "--set=train.eval.every=2";
    argv[n++] = "--set=checkpoint.every=1";
    argv[n++] = "--set=log.report=false";
    argv[n++] = td__arena_printf(arena, "--ranks=%d", s->ranks);
    argv[n++] = "--elastic";
    argv[n++] = "--quiet";
    argv[n++] = td__arena_printf(arena, "--run-dir=%s", run);
    argv[n++] = td__arena_printf(arena, "--faults=%s", faults);
    argv[n++] = "--";
    argv[n++] = s->job;
    argv[n] = NULL;
    for (int i = 0; i < n; i++)
        if (!argv[i])
            return TD_FAIL(TD_ENOMEM, "no memory for a command line");
    return TD_OK;
}

/* What is readable, to `to`; false at its end. */
static bool take(int fd, td__text *to)
{
    char buf[4096];
    ssize_t n = read(fd, buf, sizeof buf - 1);
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    buf[n] = 0;
    if (to->used < MOST_OUTPUT)
        td__text_add(to, buf);
    return true;
}

/* Until both pipes and the process have ended; its exit status, -1 if it had to be killed. */
static int wait_for(td__child *c, td__text *out, td__text *err)
{
    td__deadline until = td__deadline_in_ms(CASE_MS);
    struct pollfd p[3] = {{.fd = c->out, .events = POLLIN},
                          {.fd = c->err, .events = POLLIN},
                          {.fd = c->pidfd, .events = POLLIN}};
    bool late = false;

    while (p[0].fd >= 0 || p[1].fd >= 0 || p[2].fd >= 0) {
        if (!late && (td__deadline_passed(until) || atomic_load(&stop))) {
            late = true;
            kill(-c->pid, SIGKILL);
        }
        if (poll(p, 3, 100) < 0 && errno != EINTR)
            break;
        if (p[0].fd >= 0 && p[0].revents && !take(c->out, out))
            p[0].fd = -1;
        if (p[1].fd >= 0 && p[1].revents && !take(c->err, err))
            p[1].fd = -1;
        if (p[2].fd >= 0 && p[2].revents)
            p[2].fd = -1;
    }
    int status = td__child_reap(c);
    td__child_close(c);
    return late ? -1 : status;
}

/* "... digest sha256:HEX" of --quiet. */
static bool find_digest(const td__text *out, char digest[DIGEST + 1])
{
    const char *at = out->data ? strstr(out->data, "digest sha256:") : NULL;
    if (!at || strlen(at) < 14 + DIGEST)
        return false;
    snprintf(digest, DIGEST + 1, "%s", at + 14);
    return true;
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *f)
{
    (void)info;
    (void)flag;
    (void)f;
    return remove(path);
}

/* One run with these faults. digest: what it ended with; "" and the last of what it said in `said`
 * if it did not. */
static td_status run_once(sweep *s, const char *faults, char digest[DIGEST + 1], td__text *said,
                          double *seconds)
{
    char run[TD__PATH];
    td__arena *arena;
    const char **argv;
    td__child child;
    td__text out = {0};

    digest[0] = 0;
    td__text_clear(said);
    TD_TRY(td__run_dir_path(s->dir, "run", run));
    TD_TRY(td__arena_create(&arena));
    td_status st = make_argv(arena, s, faults, run, &argv);
    uint64_t begin = td__clock_ns();
    if (!st)
        st = td__spawn(argv, &(td__spawn_opts){.death_signal = SIGKILL}, &child);
    if (!st && (wait_for(&child, &out, said) != 0 || !find_digest(&out, digest)))
        digest[0] = 0;
    *seconds = 1e-9 * (double)(td__clock_ns() - begin);
    td__text_fini(&out);
    td__arena_destroy(arena);
    nftw(run, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return st;
}

/* ---- The points ------------------------------------------------------------------------------ */

static td_status add_point(sweep *s, const point *p)
{
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 256;
        point *more = td__realloc(s->points, (size_t)room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %d points", room);
        s->points = more;
        s->room = room;
    }
    s->points[s->n] = *p;
    s->points[s->n].count = 1;
    for (int i = 0; i < s->n; i++) {
        const point *q = &s->points[i];
        if (q->rank == p->rank && q->step == p->step && strcmp(q->kind, p->kind) == 0)
            s->points[s->n].count++;
    }
    s->n++;
    return TD_OK;
}

static td_status read_trace(sweep *s, const char *path)
{
    char line[128];
    FILE *f = fopen(path, "r");
    td_status st = TD_OK;

    if (!f)
        return TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno));
    while (!st && fgets(line, sizeof line, f)) {
        point p = {0};
        if (sscanf(line, "%d %llu %7s %23s", &p.rank, &p.step, p.kind, p.op) == 4)
            st = add_point(s, &p);
    }
    fclose(f);
    return st;
}

static int by_place(const void *a, const void *b)
{
    const point *p = a, *q = b;
    if (p->step != q->step)
        return p->step < q->step ? -1 : 1;
    if (p->rank != q->rank)
        return p->rank - q->rank;
    int kind = strcmp(p->kind, q->kind);
    return kind ? kind : p->count - q->count;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static void print_case(const sweep *s, int i, const char *faults, const char *result,
                       double seconds)
{
    const point *p = &s->points[i];
    if (s->live)
        printf("\r\033[K");
    if (!s->quiet || strcmp(result, "same") != 0)
        printf("%-44s %-22s %-8s %6.2f s\n", faults, p->op, result, seconds);
    if (s->live)
        printf("%d of %d cases, %d differ", i + 1, s->n, s->differ);
    fflush(stdout);
}

static td_status try_points(sweep *s)
{
    td__text said = {0};
    td_status st = TD_OK;

    for (int i = 0; i < s->n && !st && !atomic_load(&stop); i++) {
        const point *p = &s->points[i];
        char faults[128], digest[DIGEST + 1];
        double seconds = 0;
        snprintf(faults, sizeof faults, "kill rank=%d at=%s:%llu:%s:%d", p->rank,
                 p->step ? "step" : "generation", p->step ? p->step : 1, p->kind, p->count);
        st = run_once(s, faults, digest, &said, &seconds);
        if (st || atomic_load(&stop))
            break;
        bool same = strcmp(digest, s->digest) == 0;
        s->hits += said.data && strstr(said.data, "fault: kill");
        s->differ += !same;
        s->slowest = seconds > s->slowest ? seconds : s->slowest;
        print_case(s, i, faults, same ? "same" : *digest ? "DIFFERS" : "FAILED", seconds);
        if (!same && said.data)
            fprintf(stderr, "%s", said.data);
    }
    td__text_fini(&said);
    return st;
}

static td_status run(sweep *s)
{
    char trace[TD__PATH], faults[TD__PATH + 16];
    td__text said = {0};
    double seconds;

    TD_TRY(td__run_dir_path(s->dir, "trace", trace));
    snprintf(faults, sizeof faults, "trace=%s", trace);
    td_status st = run_once(s, faults, s->digest, &said, &seconds);
    if (!st && !*s->digest && !atomic_load(&stop))
        st = TD_FAIL(TD_EIO, "the run without faults failed: %s", said.data ? said.data : "");
    td__text_fini(&said);
    if (st || atomic_load(&stop))
        return st;
    TD_TRY(read_trace(s, trace));
    qsort(s->points, (size_t)s->n, sizeof *s->points, by_place);
    if (!s->quiet)
        printf("%d points in %d steps on %d ranks; without faults %.2f s, digest %.16s...\n", s->n,
               STEPS, s->ranks, seconds, s->digest);
    return try_points(s);
}

int td__faults_sweep(const td__args *a, const char *job, int ranks)
{
    sweep s = {.args = a, .job = job, .ranks = ranks, .quiet = td__args_has(a, "quiet")};
    struct sigaction act = {.sa_handler = on_signal};
    const char *tmp = "/tmp/tandem-sweep-XXXXXX";

    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    s.live = !s.quiet && isatty(STDOUT_FILENO);
    ssize_t length = readlink("/proc/self/exe", s.self, sizeof s.self - 1);
    snprintf(s.dir, sizeof s.dir, "%s", tmp);
    if (length <= 0 || !mkdtemp(s.dir))
        return td__failure(a, TD_FAIL(TD_EIO, "%s: %s", tmp, strerror(errno)));
    td_status st = run(&s);
    nftw(s.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (s.live)
        printf("\r\033[K");
    if (!st && !atomic_load(&stop))
        printf("%d cases, %d kills: %d ended with the digest of the run without faults, %d did "
               "not; the slowest took %.2f s\n",
               s.n, s.hits, s.n - s.differ, s.differ, s.slowest);
    td__free(s.points);
    if (st)
        return td__failure(a, st);
    if (atomic_load(&stop))
        return TD_EXIT_INTERRUPTED;
    return s.differ ? TD_EXIT_FAILED : TD_EXIT_OK;
}
