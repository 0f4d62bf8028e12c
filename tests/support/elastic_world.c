/* elastic_world.c -- see elastic_world.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/elastic_world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "support/check.h"
#include "support/sanitized.h"
#include "elastic/elastic.h"
#include "fault/faults.h"
#include "run/run_dir.h"

enum { PATIENCE_S = SANITIZED ? 1000 : 280 };

typedef struct director director;

typedef struct process {
    td__members members; /* first */
    td__observer watch;
    director *d;
    int id;
    pthread_t thread;
    bool dead, going, waiting, over, ended;
    bool in;      /* the generation g, and has not left it */
    bool writing; /* it has come to the slow disk */
    bool leaving; /* it leaves the generation now, */
    bool holds;   /* and holds the checkpoints all the same */
    td_comm *comm;
    td__generation g;
    td__faults *faults;
    td__observer *metrics;
    atomic_int stop;
    td_status st;
    char text[400];
    td__train_result result;
    td__eval_result test;
} process;

struct director {
    const elastic_plan *plan;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    process *all[ELASTIC_MOST];
    int n, changes; /* changes: of the plan that have been made */
    uint64_t generation;
    bool wanted, stopping;
};

static process *process_of(td__members *m)
{
    return (process *)m;
}

static bool is_in(const process *p)
{
    return !p->dead && !p->going && !p->over && !p->ended;
}

/* ---- Generations (under the lock) ------------------------------------------------------------ */

/* All who are in wait for the next one: make it. */
static void form(director *d)
{
    process *in[ELASTIC_MOST];
    td_comm *comms[ELASTIC_MOST];
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        process *p = d->all[d->plan->newest_first ? d->n - 1 - i : i];
        if (p->going && p->in && !p->dead && !p->ended)
            return;
        if (!is_in(p))
            continue;
        if (!p->waiting)
            return;
        in[n++] = p;
    }
    if (!n || td_comm_threads(n, NULL, comms))
        return;
    d->generation++;
    d->wanted = false;
    for (int r = 0; r < n; r++) {
        in[r]->waiting = in[r]->leaving = false;
        in[r]->in = true;
        in[r]->comm = comms[r];
        in[r]->g = (td__generation){.number = d->generation, .rank = r, .size = n};
    }
    pthread_cond_broadcast(&d->changed);
}

static void *live(void *arg);

static void start(director *d)
{
    CHECK(d->n < ELASTIC_MOST, "too many processes");
    process *p = td__calloc(1, sizeof *p);
    p->d = d;
    p->id = d->n;
    d->all[d->n++] = p;
    d->wanted = d->generation > 0;
    CHECK(pthread_create(&p->thread, NULL, live, p) == 0, "no thread");
}

static td_status next(td__members *m, td__deadline until, td__generation *g, td_comm **comm)
{
    process *p = process_of(m);
    director *d = p->d;
    td_status st = TD_OK;
    struct timespec ts = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};

    pthread_mutex_lock(&d->lock);
    p->waiting = true;
    form(d);
    while (!p->comm && !p->dead && !p->going && !st)
        if (pthread_cond_timedwait(&d->changed, &d->lock, &ts) == ETIMEDOUT && !p->comm)
            st = TD_FAIL(TD_ETIMEDOUT, "no generation came");
    p->waiting = false;
    if (p->dead || p->going)
        st = TD_FAIL(TD_EABORTED, "this process is %s", p->dead ? "dead" : "drained");
    if (st && p->comm) { /* the others must not wait for it */
        td_comm_abort(p->comm, "it died before it came");
        p->in = false;
    }
    if (!st) {
        *comm = p->comm;
        *g = p->g;
        p->comm = NULL;
    }
    form(d);
    pthread_mutex_unlock(&d->lock);
    return st;
}

static bool wanted(td__members *m)
{
    director *d = process_of(m)->d;
    pthread_mutex_lock(&d->lock);
    bool w = d->wanted;
    pthread_mutex_unlock(&d->lock);
    return w;
}

static bool going(td__members *m)
{
    process *p = process_of(m);
    pthread_mutex_lock(&p->d->lock);
    bool g = p->going;
    pthread_mutex_unlock(&p->d->lock);
    return g;
}

static bool is_locked(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    CHECK(fd >= 0, "cannot open %s", dir);
    close(fd);
    return locked;
}

static void leave(td__members *m, uint64_t g, td_status st, const char *why)
{
    process *p = process_of(m);
    const elastic_plan *plan = p->d->plan;
    (void)g;
    pthread_mutex_lock(&p->d->lock);
    p->holds = plan->slow_disk_at && p->going && !p->g.rank && is_locked(plan->opts.checkpoint_dir);
    p->in = false;
    p->leaving = true;
    pthread_cond_broadcast(&p->d->changed);
    p->over = st ? !td__elastic_survives(st) : strcmp(why, "the run is over") == 0;
    form(p->d);
    pthread_mutex_unlock(&p->d->lock);
}

static void drain(td__members *m)
{
    process *p = process_of(m);
    pthread_mutex_lock(&p->d->lock);
    p->going = true;
    p->d->wanted = true;
    pthread_mutex_unlock(&p->d->lock);
}

static bool stopping(td__members *m)
{
    director *d = process_of(m)->d;
    pthread_mutex_lock(&d->lock);
    bool s = d->stopping;
    pthread_mutex_unlock(&d->lock);
    return s;
}

static void heartbeat(td__members *m, const td__heartbeat *b)
{
    process *p = process_of(m);
    pthread_mutex_lock(&p->d->lock);
    if (b->phase == TD_PHASE_DISK && b->what && strstr(b->what, "before leaving")) {
        p->leaving = true;
        pthread_cond_broadcast(&p->d->changed);
    }
    pthread_mutex_unlock(&p->d->lock);
}

static const td__members_ops OPS = {.next = next,
                                    .wanted = wanted,
                                    .going = going,
                                    .leave = leave,
                                    .heartbeat = heartbeat,
                                    .drain = drain,
                                    .stopping = stopping};

/* ---- A process ------------------------------------------------------------------------------- */

static td_status die(void *user, const td__fault_event *e)
{
    process *p = user;
    director *d = p->d;
    pthread_mutex_lock(&d->lock);
    if (d->plan->slow_disk_at && e->act == TD_FAULT_STOP) {
        p->writing = true;
        pthread_cond_broadcast(&d->changed);
        while (!p->leaving)
            pthread_cond_wait(&d->changed, &d->lock);
        pthread_mutex_unlock(&d->lock);
        return TD_OK;
    }
    if (!p->dead) {
        p->dead = true;
        for (int i = 0; i < d->n; i++)
            if (d->all[i]->g.number == p->g.number &&
                (p->g.number == d->plan->all_die_in ||
                 (d->plan->takes_next && d->all[i]->g.rank == p->g.rank + 1)))
                d->all[i]->dead = true;
        if (d->plan->replace)
            start(d);
    }
    pthread_mutex_unlock(&d->lock);
    return TD_FAIL(TD_EABORTED, "rank %d died", p->g.rank);
}

static td_status lead_begin(void *user, td__trainer *t, uint64_t step, uint64_t valid,
                            uint64_t *told_step, uint64_t *told_valid)
{
    process *p = user;
    if (!p->d->plan->dir)
        return TD_OK;
    TD_TRY(td__metrics_file_take_over(p->d->plan->dir, step, valid, told_step, told_valid,
                                      &p->metrics));
    return td__trainer_observe(t, p->metrics);
}

static void lead_end(void *user)
{
    process *p = user;
    td__metrics_file_destroy(p->metrics);
    p->metrics = NULL;
}

/* The world becomes larger or smaller. */
static void resize(director *d, int size)
{
    int in = 0;
    for (int i = 0; i < d->n; i++)
        in += is_in(d->all[i]);
    for (; in < size; in++)
        start(d);
    for (int i = 0; i < d->n && in > size; i++)
        if (is_in(d->all[i])) {
            d->all[i]->going = true;
            in--;
        }
    d->wanted = true;
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    process *p = (process *)((char *)o - offsetof(process, watch));
    director *d = p->d;
    const elastic_plan *plan = d->plan;
    if (p->id == 0 && e->step == plan->stop_one_after)
        atomic_store(&p->stop, 1);
    if (p->g.rank > 0)
        return TD_OK;
    if (plan->rank_0_did)
        plan->rank_0_did(plan, e->step);
    pthread_mutex_lock(&d->lock);
    while (plan->slow_disk_at && e->step == plan->slow_disk_at + 1 && !p->writing)
        pthread_cond_wait(&d->changed, &d->lock);
    d->stopping = d->stopping || (plan->stop_all_after && e->step >= plan->stop_all_after);
    if (d->changes < 4 && plan->change[d->changes].size && e->step >= plan->change[d->changes].step)
        resize(d, plan->change[d->changes++].size);
    pthread_mutex_unlock(&d->lock);
    return TD_OK;
}

static td_status run(process *p)
{
    const elastic_plan *plan = p->d->plan;
    td__train_opts o = plan->opts;
    if (plan->differs)
        plan->differs(p->id, &o);
    td__train_lead lead = {.user = p, .begin = lead_begin, .end = lead_end};
    td__trainer *t = NULL;

    p->members.ops = &OPS;
    p->watch.step = on_step;
    if (plan->faults)
        TD_TRY(td__faults_create(plan->faults, die, p, &p->faults));
    if (plan->dir)
        TD_TRY(td__faults_record(p->faults, plan->dir));
    o.members = &p->members;
    o.lead = &lead;
    o.faults = p->faults;
    td_status st = td__trainer_create(&o, plan->model, plan->data, &t);
    if (!st)
        st = td__trainer_observe(t, &p->watch);
    if (!st)
        st = td__trainer_run(t, &p->stop, &p->result);
    if (!st)
        p->test = *td__trainer_test(t);
    if (st)
        snprintf(p->text, sizeof p->text, "%s", td_last_error());
    td__trainer_destroy(t);
    td__faults_destroy(p->faults);
    return st;
}

static void *live(void *arg)
{
    process *p = arg;
    td_status st = run(p);
    pthread_mutex_lock(&p->d->lock);
    p->st = st;
    p->ended = true;
    form(p->d); /* the others need not wait for this one */
    pthread_cond_broadcast(&p->d->changed);
    pthread_mutex_unlock(&p->d->lock);
    return NULL;
}

static void note(const process *p, elastic_end *out)
{
    out->two_writers += p->holds;
    if (p->dead)
        out->died++;
    else if (p->going)
        out->drained++;
    else if (p->st) {
        out->failed++;
        if (!out->failure)
            snprintf(out->text, sizeof out->text, "%s", p->text);
        out->failure = out->failure ? out->failure : p->st;
    } else {
        if (!out->finished)
            out->result = p->result;
        CHECK(strcmp(out->result.digest, p->result.digest) == 0, "ranks have different weights");
        out->test = p->test;
        out->finished++;
    }
}

void elastic_check_metrics(const char *dir, int steps)
{
    char path[512], line[4096];
    int step = 0, eval = 0, ends = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    CHECK(f, "there is no %s", path);
    while (fgets(line, sizeof line, f)) {
        json_t *o = json_loads(line, 0, NULL);
        CHECK(o, "a broken line: %s", line);
        const char *kind = json_string_value(json_object_get(o, "kind"));
        const char *part = json_string_value(json_object_get(o, "part"));
        int n = (int)json_integer_value(json_object_get(o, "step"));
        if (strcmp(kind, "step") == 0)
            CHECK(n == ++step, "step %d after step %d", n, step - 1);
        if (strcmp(kind, "eval") == 0 && strcmp(part, "valid") == 0) {
            eval += 2;
            CHECK(n == eval && n == step, "validation %d after step %d", n, step);
        }
        ends += strcmp(kind, "end") == 0;
        json_decref(o);
    }
    fclose(f);
    CHECK(step == steps && eval == steps / 2 * 2 && ends == 1, "%d steps, validation %d, %d ends",
          step, eval, ends);
}

void elastic_run(const elastic_plan *plan, elastic_end *out)
{
    director d = {.plan = plan};
    struct timespec until;
    pthread_condattr_t attr;

    *out = (elastic_end){.failure = TD_OK};
    pthread_mutex_init(&d.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d.changed, &attr);
    pthread_condattr_destroy(&attr);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&d.lock);
    for (int i = 0; i < plan->size; i++)
        start(&d);
    for (int i = 0; i < d.n; i++)
        while (!d.all[i]->ended)
            CHECK(pthread_cond_timedwait(&d.changed, &d.lock, &until) == 0,
                  "process %d of %d hangs in generation %d (faults: %s)", i, d.n, (int)d.generation,
                  plan->faults ? plan->faults : "none");
    pthread_mutex_unlock(&d.lock);
    for (int i = 0; i < d.n; i++) {
        pthread_join(d.all[i]->thread, NULL);
        td_comm_destroy(d.all[i]->comm);
        note(d.all[i], out);
        td__free(d.all[i]);
    }
    out->generations = d.generation;
    pthread_cond_destroy(&d.changed);
    pthread_mutex_destroy(&d.lock);
}
