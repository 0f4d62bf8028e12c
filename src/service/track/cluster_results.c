/* cluster_results.c -- trackers whose members write into the job's directory, which the service
 * sees: its metrics are followed while the group runs, and when it has succeeded its results are
 * published before EXITED says so. Publishing has threads of its own: sending may take long, and
 * other groups are looked at meanwhile.
 *
 * Where members write into another directory that the service sees too (slurm.dir), what programs
 * leave there is copied: metrics while they run, artifacts at the end. Job files that run under
 * `tandem attend` do without. That directory may be of a network that hangs: threads of calls look
 * into it, never the loop. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/file_below.h"
#include "base/log.h"
#include "rpc/work.h"
#include "service/track/artifact_list.h"
#include "service/track/cluster_impl.h"
#include "service/track/results.h"

enum { PATH = 4300, PIECE = 64 << 10, AT_ONCE = 2, METRICS_MS = 1000, STOPPED = 143 };

struct td__publication {
    td__work work;
    td__cluster *c;
    td__launch *l;
    pthread_mutex_t lock; /* remote, unwanted */
    td__remote *remote;
    bool unwanted;
    td_status st;
    td__left_out left_out;
    char text[1024];
    td__publication *next;
};

/* "TEXT/artifacts" of the environment, without the last part; the job's directory without it. */
static bool writes_elsewhere(const td__group *g, char dir[PATH])
{
    static const char LAST[] = "/artifacts";
    const char *artifacts = td__results_env(g->env, "TANDEM_ARTIFACTS_DIR");
    size_t n = artifacts ? strlen(artifacts) : 0, last = sizeof LAST - 1;
    bool known = n > last && n < PATH && strcmp(artifacts + n - last, LAST) == 0;

    snprintf(dir, PATH, "%.*s", known ? (int)(n - last) : PATH, known ? artifacts : g->dir);
    return strcmp(dir, g->dir) != 0;
}

/* ---- metrics ---- */

/* Are the first nbytes of both the same? */
static bool begin_alike(int a, int b, uint64_t nbytes)
{
    char x[PIECE], y[PIECE];

    for (uint64_t at = 0; at < nbytes;) {
        size_t n = nbytes - at < PIECE ? (size_t)(nbytes - at) : PIECE;
        if (pread(a, x, n, (off_t)at) != (ssize_t)n || pread(b, y, n, (off_t)at) != (ssize_t)n ||
            memcmp(x, y, n) != 0)
            return false;
        at += n;
    }
    return true;
}

/* What `from` has beyond the end of `to`, which is a copy of its beginning. */
static td_status append(int from, int to, uint64_t at, uint64_t nbytes)
{
    char piece[PIECE];

    while (at < nbytes) {
        uint64_t left = nbytes - at;
        ssize_t n = pread(from, piece, left < PIECE ? (size_t)left : PIECE, (off_t)at);
        ssize_t done = 0;
        for (ssize_t k = 1; n > 0 && done < n && k > 0; done += k > 0 ? k : 0)
            k = write(to, piece + done, (size_t)(n - done));
        if (n <= 0 || done < n)
            return n ? TD_FAIL(TD_EIO, "metrics.jsonl: %s", strerror(errno)) : TD_OK;
        at += (uint64_t)n;
    }
    return TD_OK;
}

/* The copy is continued by its own size, so that nothing is in it twice. All of it is copied where
 * the file has been made anew, also by another attempt: then the first look finds another
 * beginning. */
static td_status copy_metrics(td__cluster_group *g, int fd, const char *to)
{
    struct stat from, has;
    int out = td__file_open_plain(to, O_RDWR | O_APPEND, 0600);
    td_status st = TD_OK;

    if (fstat(fd, &from)) {
        st = TD_FAIL(TD_EIO, "metrics.jsonl: %s", strerror(errno));
    } else if (out < 0 || fstat(out, &has) || has.st_size > from.st_size ||
               (!g->metrics_known && !begin_alike(fd, out, (uint64_t)has.st_size))) {
        st = td__file_copy_fd(fd, "metrics.jsonl", to, NULL);
    } else {
        st = append(fd, out, (uint64_t)has.st_size, (uint64_t)from.st_size);
    }
    g->metrics_known = true;
    if (out >= 0)
        close(out);
    return st;
}

void td__cluster_bring_metrics(td__cluster_group *g)
{
    const td__group *l = &g->l->g;
    const char *name = l->spec->job_file[0] ? "run/metrics.jsonl" : "metrics.jsonl";
    char there[PATH], to[PATH];

    if (!g->c->ops->shared_dir || l->attended || !writes_elsewhere(l, there))
        return;
    int fd = td__file_open_below(there, name, O_RDONLY, 0);
    if (fd < 0)
        return;
    snprintf(to, sizeof to, "%.4200s/run", l->dir);
    if (l->spec->job_file[0])
        mkdir(to, 0700); /* what is missing shows when the file is copied into it */
    snprintf(to, sizeof to, "%.4200s/%s", l->dir, name);
    if (copy_metrics(g, fd, to))
        TD_LOG(WARN, SERVICE, "%s: %s", l->token, td_last_error());
    close(fd);
}

/* Another directory is looked into by a thread; its end looks at what has come. */
static void on_metrics_due(void *arg)
{
    td__cluster_group *g = arg;
    char there[PATH];
    td__call *call = !g->l->g.attended && writes_elsewhere(&g->l->g, there)
                         ? td__cluster_call(g, TD_CALL_METRICS)
                         : NULL;

    if (call)
        td__cluster_push(g, call);
    else
        td__cluster_metrics_look(g);
}

void td__cluster_metrics_look(td__cluster_group *g)
{
    static const char *const NAMES[] = {"run/metrics.jsonl", "metrics.jsonl"};
    char path[PATH];
    struct stat info;
    uint64_t nbytes = 0;

    if (!g->c->ops->shared_dir || g->c->closing)
        return;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        snprintf(path, sizeof path, "%.4200s/%s", g->l->g.dir, NAMES[i]);
        if (lstat(path, &info) == 0 && S_ISREG(info.st_mode))
            nbytes += (uint64_t)info.st_size;
    }
    g->metrics.due = on_metrics_due;
    g->metrics.arg = g;
    if (!g->over)
        td__timer_start(g->c->base.c.loop, &g->metrics, td__deadline_in_ms(METRICS_MS));
    if (nbytes != g->metrics_nbytes) {
        g->metrics_nbytes = nbytes;
        td__cluster_say(g, TD_TRACK_METRICS, 0, NULL);
    }
}

/* ---- results ---- */

static bool is_unwanted(void *arg)
{
    td__publication *p = arg;

    pthread_mutex_lock(&p->lock);
    bool unwanted = p->unwanted;
    pthread_mutex_unlock(&p->lock);
    return unwanted;
}

static void sending(void *arg, td__remote *r)
{
    td__publication *p = arg;

    pthread_mutex_lock(&p->lock);
    p->remote = r;
    if (r && p->unwanted)
        td__remote_stop(r);
    pthread_mutex_unlock(&p->lock);
}

/* Files that are listed, from one directory into another below `dir`, which may have links. */
static td_status bring_artifacts(const char *from, const char *list, const char *dir)
{
    char temporary[PATH], to[PATH];
    td__artifact_line line;
    td__file_map m;
    td_status st = TD_OK;

    snprintf(temporary, sizeof temporary, "%.4200s.brought", list);
    TD_TRY(td__file_map_copy(&m, list, TD__ARTIFACT_LIST_BYTES));
    for (size_t at = 0;
         !st && td__artifact_list_next((const char *)m.data, m.nbytes, &at, &line);) {
        int fd = td__file_open_below(from, line.name, O_RDONLY, 0);
        st = fd < 0 ? TD_FAIL(TD_EIO, "%s: %s", line.name, strerror(errno))
                    : td__file_copy_fd(fd, line.name, temporary, NULL);
        if (fd >= 0)
            close(fd);
        snprintf(to, sizeof to, "artifacts/%s", line.name);
        int error = st ? 0 : td__file_place_below(dir, to, temporary);
        if (error)
            st = TD_FAIL(TD_EIO, "%s/%s: %s", dir, to, strerror(error));
    }
    td__file_map_close(&m);
    if (st)
        unlink(temporary);
    return st;
}

/* Members write into the job's directory, and may make anything of it a link: the list is made
 * beside that directory, and goes into it without following one. */
static td_status publish(td__publication *p)
{
    const td__group *g = &p->l->g;
    char run[PATH], there[PATH], artifacts[PATH], list[PATH], name[TD__TOKEN + 32];
    bool elsewhere = writes_elsewhere(g, there);

    snprintf(list, sizeof list, "%.4100s.list-%.80s", g->dir, g->token);
    snprintf(name, sizeof name, "attempts/%s/" TD__ARTIFACT_LIST, g->token);
    snprintf(run, sizeof run, "%.4200s/run", there);
    snprintf(artifacts, sizeof artifacts, "%.4200s/artifacts", there);
    unlink(list);
    td_status st = td__results_publish(&(td__results){.run = g->spec->job_file[0] ? run : NULL,
                                                      .artifacts = artifacts,
                                                      .list = list,
                                                      .env = g->env,
                                                      .stop = is_unwanted,
                                                      .left_out = &p->left_out,
                                                      .sending = sending,
                                                      .arg = p});
    if (!st && elsewhere && access(list, F_OK) == 0)
        st = bring_artifacts(artifacts, list, g->dir);
    int error = !st && access(list, F_OK) == 0 ? td__file_place_below(g->dir, name, list) : 0;
    if (error)
        st = TD_FAIL(TD_EIO, "%s/%s: %s", g->dir, name, strerror(error));
    if (st)
        unlink(list);
    return st;
}

static void run_publication(void *arg)
{
    td__publication *p = arg;

    p->st = publish(p);
    snprintf(p->text, sizeof p->text, "%s", p->st ? td_last_error() : "");
}

static void end_publication(void *arg, bool was_run)
{
    td__publication *p = arg;
    td__cluster *c = p->c;
    td__cluster_group *g = td__cluster_find(c, p->l->g.token);

    for (td__publication **at = &c->publications; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    if (g && g->publication == p) {
        g->publication = NULL;
        if (!was_run || p->st) { /* a success without its results is none */
            g->exit_status = g->signalled ? STOPPED : 1;
            snprintf(g->text, sizeof g->text, "its artifacts: %.1000s",
                     was_run ? p->text : "no thread to list them");
        } else if (p->left_out.n) {
            int n = snprintf(g->text, sizeof g->text, "Exit code 0; ");
            td__left_out_show(&p->left_out, g->text + n, sizeof g->text - (size_t)n);
        }
        if (!c->closing)
            td__cluster_tidy(g);
    }
    pthread_mutex_destroy(&p->lock);
    td__launch_destroy(p->l);
    td__free(p);
}

bool td__cluster_publish(td__cluster_group *g)
{
    td__cluster *c = g->c;

    char there[PATH];

    if (!c->ops->shared_dir || g->exit_status != 0 ||
        (g->l->g.attended && writes_elsewhere(&g->l->g, there)))
        return false;
    td__publication *p = td__calloc(1, sizeof *p);
    if (!p || td__launch_copy(&g->l->g, &p->l) ||
        (!c->publishers && td__work_threads_create(c->base.c.loop, AT_ONCE, &c->publishers))) {
        if (p)
            td__launch_destroy(p->l);
        td__free(p);
        g->exit_status = 1;
        snprintf(g->text, sizeof g->text, "its artifacts: out of memory");
        return false;
    }
    p->c = c;
    p->work = (td__work){.run = run_publication, .done = end_publication, .arg = p};
    pthread_mutex_init(&p->lock, NULL);
    p->next = c->publications;
    c->publications = g->publication = p;
    td__work_threads_add(c->publishers, &p->work);
    return true;
}

static void stop(td__publication *p)
{
    pthread_mutex_lock(&p->lock);
    p->unwanted = true;
    if (p->remote)
        td__remote_stop(p->remote);
    pthread_mutex_unlock(&p->lock);
}

void td__cluster_publish_stop(td__cluster_group *g)
{
    if (g->publication)
        stop(g->publication);
}

void td__cluster_publish_end(td__cluster *c)
{
    for (td__publication *p = c->publications; p; p = p->next)
        stop(p);
    td__work_threads_destroy(c->publishers);
    c->publishers = NULL;
}
