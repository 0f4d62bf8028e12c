/* prog_members.c -- a process of an elastic launch for the end-to-end tests: sums over the members,
 * step after step, through any number of generations.
 *
 *     steps N MS [FILE [FILES]]   N steps of MS milliseconds each, more as long as there is FILE;
 *                    prints "begin PID", "generation G rank R of S at step K after T ms" (T since
 *                    the last finished step), "done K". A rank that comes late starts where the
 *                    furthest member is. With so many FILES open, or as many as it may: its
 *                    connections are closed long before it is dead when it is killed.
 *     crash          joins and exits with status 7, saying why
 *     early          exits with status 3 before it joins
 *
 * SIGTERM asks to be let go at the next step border. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "coll/members.h"

enum { OWN_FILES = 256 }; /* at most */

static volatile sig_atomic_t asked_to_go;

static void on_term(int sig)
{
    (void)sig;
    asked_to_go = 1;
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, td_last_error());
    return 1;
}

/* What the members have agreed on in a step. */
typedef struct agreed {
    bool ending; /* the generation is to end */
    bool more;   /* steps are to come */
} agreed;

/* One step: who is in says so, whether the generation is to end, and whether there are more. */
static td_status step(td_comm *c, bool ending, bool more, agreed *a)
{
    double in[3] = {1, ending, more}, out[3];
    td_status st = td_allreduce(c, in, out, 3, TD_F64, TD_REDUCE_SUM, NULL);
    *a = (agreed){.ending = out[1] > 0, .more = out[2] > 0};
    if (!st && out[0] != (double)td_comm_size(c)) {
        fprintf(stderr, "the sum over %d ranks is %g\n", td_comm_size(c), out[0]);
        exit(4);
    }
    return st;
}

static int run(td__members *m, double n, int ms, const char *file)
{
    double at = 0;
    uint64_t last_ns = td__clock_ns();
    bool draining = false;
    for (;;) {
        td__generation g;
        td_comm *c;
        td_status st = m->ops->next(m, td__deadline_in_ms(100000), &g, &c);
        if (st == TD_EABORTED) {
            printf("end: %s\n", td_last_error());
            return 0;
        }
        if (st)
            return fail("no generation");
        st = td_allreduce(c, &at, &at, 1, TD_F64, TD_REDUCE_MAX, NULL);
        agreed all = {0};
        if (!st)
            st = step(c, false, true, &all);
        if (!st)
            printf("generation %llu rank %d of %d at step %.0f after %.0f ms: %s\n",
                   (unsigned long long)g.number, g.rank, g.size, at,
                   (double)(td__clock_ns() - last_ns) / 1e6, g.why);
        while (!st && all.more && !all.ending) {
            if (asked_to_go && !draining) {
                draining = true;
                m->ops->drain(m);
            }
            if (ms)
                poll(NULL, 0, ms);
            bool more = at + 1 < n || (file && access(file, F_OK) == 0);
            st = step(c, m->ops->wanted(m), more, &all);
            if (!st) {
                at++;
                last_ns = td__clock_ns();
                m->ops->heartbeat(m,
                                  &(td__heartbeat){.step = (uint64_t)at, .phase = TD_PHASE_COMM});
            }
        }
        char why[300];
        snprintf(why, sizeof why, "%s", st ? td_last_error() : "");
        if (st)
            printf("left generation %llu at step %.0f: %s\n", (unsigned long long)g.number, at,
                   why);
        td_comm_destroy(c);
        m->ops->leave(m, g.number, st, why);
        if (!st && !all.more) {
            printf("done %.0f\n", at);
            return 0;
        }
    }
}

/* The kernel closes what was opened last first, and the end of a process is known when all is. */
static void open_files(long n)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most))
        return;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    if (n > (long)most.rlim_cur - OWN_FILES)
        n = (long)most.rlim_cur - OWN_FILES;
    while (n-- > 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
        ;
}

int main(int argc, char **argv)
{
    td__members *m;
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, on_term);
    printf("begin %d\n", (int)getpid());
    if (!strcmp(what, "early"))
        return 3;
    if (argc > 5)
        open_files(strtol(argv[5], NULL, 10));
    if (td__members_from_env(NULL, &m))
        return fail("no members");
    if (!m) {
        fprintf(stderr, "not started by an elastic launch\n");
        return 5;
    }
    int rc = 2;
    if (!strcmp(what, "crash")) {
        td__generation g;
        td_comm *c;
        if (!m->ops->next(m, td__deadline_in_ms(100000), &g, &c))
            td_comm_destroy(c);
        fprintf(stderr, "the disk is made of cheese\n");
        rc = 7;
    } else if (!strcmp(what, "steps") && argc > 3) {
        rc = run(m, strtod(argv[2], NULL), (int)strtol(argv[3], NULL, 10),
                 argc > 4 ? argv[4] : NULL);
    }
    m->ops->destroy(m);
    return rc;
}
