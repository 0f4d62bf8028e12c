/* checkpoint.c -- saving checkpoints in the background. What the caller waits for is a copy of the
 * blocks; a thread then writes it (checkpoint_write.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/params.h"
#include "tandem/tensor.h"
#include "checkpoint/checkpoint_impl.h"

enum { PATIENCE_MS = 600000, LOCK_MS = 2000, LOCK_POLL_MS = 2 };

static void release(td__checkpointer *c)
{
    if (c->dir_fd >= 0)
        close(c->dir_fd);
    td_params_destroy(c->copy);
    td__free_block(c->states, c->states_nbytes);
    td__block_copies_fini(&c->blocks);
    td__text_fini(&c->preprocessing);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    td__free(c);
}

static void *work(void *arg)
{
    td__checkpointer *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->busy && !c->stop)
            pthread_cond_wait(&c->changed, &c->lock);
        if (!c->busy)
            break;
        pthread_mutex_unlock(&c->lock);
        uint64_t begin = td__clock_ns();
        td_status st = td__checkpoint_write(c);
        double seconds = 1e-9 * (double)(td__clock_ns() - begin);
        pthread_mutex_lock(&c->lock);
        c->seconds = seconds;
        c->status = st;
        if (st)
            snprintf(c->error, sizeof c->error, "%s", td_last_error());
        c->finished = !st;
        c->busy = false;
        pthread_cond_broadcast(&c->changed);
    }
    bool given_up = c->given_up;
    pthread_mutex_unlock(&c->lock);
    if (given_up)
        release(c);
    return NULL;
}

/* ---- The caller's side ----------------------------------------------------------------------- */

/* force: after a while without the lock, if need be. */
static td_status lock_dir(const td__checkpointer *c, bool force)
{
    td__deadline until = td__deadline_in_ms(force ? LOCK_MS : 0);
    while (flock(c->dir_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (!force)
            return TD_FAIL(TD_EINVAL, "%s: another run is writing its checkpoints there", c->dir);
        if (td__deadline_passed(until)) {
            TD_LOG(WARN, TRAIN,
                   "%s: lock still held by the previous rank 0 after %d s; continuing without it "
                   "(that process writes no more checkpoints if it resumes)",
                   c->dir, LOCK_MS / 1000);
            return TD_OK;
        }
        (void)poll(NULL, 0, LOCK_POLL_MS); /* locks cannot be waited for with a deadline */
    }
    return TD_OK;
}

static td_status open_dir(td__checkpointer *c, bool force)
{
    if (access(c->dir, W_OK | X_OK) != 0)
        return TD_FAIL(TD_EIO, "%s: cannot write checkpoints there: %s", c->dir, strerror(errno));
    c->dir_fd = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->dir_fd < 0)
        return td__checkpoint_disk_failed(c->dir, "open it");
    TD_TRY(lock_dir(c, force));
    if (force)
        TD_TRY(td__checkpoint_writer_become(c));
    else
        td__checkpoint_writer_find(c);
    return td__checkpoint_sweep(c->dir);
}

static void init_sync(td__checkpointer *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&c->lock, NULL);
}

static td_status create(const char *dir, int keep, bool force, td__checkpointer **out)
{
    td_status st;
    *out = NULL;
    if (keep < 0)
        return TD_FAIL(TD_EINVAL, "%d checkpoints to keep: must not be negative", keep);
    td__checkpointer *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory for checkpoints");
    c->dir_fd = -1;
    c->keep = keep ? keep : 1;
    c->patience_ms = PATIENCE_MS;
    init_sync(c);
    TD_TRY_OR(st, fail, td__run_dir_create(dir, NULL, c->dir));
    TD_TRY_OR(st, fail, open_dir(c, force));
    int error = pthread_create(&c->thread, NULL, work, c);
    if (error) {
        st = TD_FAIL(TD_ENOMEM, "cannot start the thread that writes checkpoints: %s",
                     strerror(error));
        goto fail;
    }
    c->started = true;
    *out = c;
    return TD_OK;
fail:
    release(c);
    return st;
}

td_status td__checkpointer_create(const char *dir, int keep, td__checkpointer **out)
{
    return create(dir, keep, false, out);
}

td_status td__checkpointer_take_over(const char *dir, int keep, td__checkpointer **out)
{
    return create(dir, keep, true, out);
}

void td__checkpointer_points(td__checkpointer *c, td__points *p)
{
    c->points = p;
}

bool td__checkpointer_has(const td__checkpointer *c, uint64_t step, bool best)
{
    char name[TD__STEP_NAME], at[TD__STEP_NAME] = "";
    td__step_name(step, name);
    return td__checkpoint_pointer(c->dir, TD__LATEST_FILE, at) && strcmp(at, name) == 0 &&
           (!best || (td__checkpoint_pointer(c->dir, TD__BEST_FILE, at) && strcmp(at, name) == 0));
}

void td__checkpointer_excuse(td__checkpointer *c)
{
    pthread_mutex_lock(&c->lock);
    if (!c->busy)
        c->status = TD_OK;
    pthread_mutex_unlock(&c->lock);
}

/* Until the thread is idle; its failure, if the last save failed. */
static td_status wait_idle(td__checkpointer *c)
{
    td__deadline end = td__deadline_in_ms(c->patience_ms);
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                             .tv_nsec = (long)(end % 1000000000u)};
    int error = 0;

    pthread_mutex_lock(&c->lock);
    while (c->busy && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    td_status st = c->status;
    bool busy = c->busy;
    pthread_mutex_unlock(&c->lock);
    if (busy)
        return TD_FAIL(TD_ETIMEDOUT, "%s: the disk has not taken a checkpoint in %g seconds",
                       c->dir, 1e-3 * c->patience_ms);
    return st ? TD_FAIL(st, "%s", c->error) : TD_OK;
}

void td__checkpointer_patience(td__checkpointer *c, uint32_t ms)
{
    c->patience_ms = ms ? ms : PATIENCE_MS;
}

void td__checkpointer_destroy(td__checkpointer *c)
{
    if (!c)
        return;
    if (c->started) {
        if (wait_idle(c) == TD_ETIMEDOUT)
            TD_LOG(WARN, TRAIN, "%s; it is given up", td_last_error());
        pthread_t thread = c->thread;
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        bool busy = c->given_up = c->busy;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
        if (busy) {
            pthread_detach(thread);
            return;
        }
        pthread_join(thread, NULL);
    }
    release(c);
}

td_status td__checkpointer_wait(td__checkpointer *c)
{
    return wait_idle(c);
}

static td_status make_room(td__checkpointer *c, const td_params *ps, td_optimizer *o)
{
    c->n_states = td_optimizer_state_count(o);
    c->stride = td_params_trainable(ps);
    size_t states = (size_t)c->n_states * c->stride * sizeof(float);
    if (!c->states || c->states_nbytes != states) {
        td__free_block(c->states, c->states_nbytes);
        c->states = td__alloc_block(states);
        c->states_nbytes = states;
    }
    return c->states
               ? TD_OK
               : TD_FAIL(TD_ENOMEM, "no memory for a copy of %zu bytes to checkpoint", states);
}

/* Everything but the blocks. */
static void note(td__checkpointer *c, const td__train_state *state, const td_params *ps,
                 const td_optimizer *o, bool is_best)
{
    c->ps = ps;
    c->n_states = td_optimizer_state_count(o);
    for (int k = 0; k < c->n_states; k++)
        c->state_name[k] = td_optimizer_state_name(o, k);
    memset(&c->m, 0, sizeof c->m);
    c->m.state = *state;
    c->m.optimizer_steps = td_optimizer_steps(o);
    snprintf(c->m.optimizer, sizeof c->m.optimizer, "%s", td_optimizer_name(o));
    c->is_best = is_best;
    c->from = NULL;
}

td_status td__checkpointer_save(td__checkpointer *c, const td__train_state *state, td_params *ps,
                                td_optimizer *o, bool is_best)
{
    uint64_t begin = td__clock_ns();
    TD_TRY(wait_idle(c));
    TD_TRY(make_room(c, ps, o));
    TD_TRY(td__params_copy(ps, &c->copy));
    for (int k = 0; k < c->n_states; k++) {
        float *at = c->states + (size_t)k * c->stride;
        TD_TRY(td__mem_read(td__params_device(ps), at, td_optimizer_state(o, k, NULL),
                            c->stride * sizeof(float)));
        TD_TRY(td__params_unpack(ps, at));
    }
    note(c, state, c->copy, o, is_best);
    c->stalled = 1e-9 * (double)(td__clock_ns() - begin);
    pthread_mutex_lock(&c->lock);
    c->busy = true;
    c->finished = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return TD_OK;
}

td_status td__checkpointer_preprocessing(td__checkpointer *c, const char *text, size_t nbytes)
{
    TD_TRY(wait_idle(c));
    td__text_clear(&c->preprocessing);
    td__text_append(&c->preprocessing, text, nbytes);
    return td__text_status(&c->preprocessing);
}

td_status td__checkpointer_blocks(td__checkpointer *c, const td__checkpoint_block *blocks, int n)
{
    TD_TRY(wait_idle(c));
    return td__block_copies_take(&c->blocks, blocks, n);
}

td_status td__checkpointer_write(td__checkpointer *c, const td__train_state *state,
                                 const td_params *ps, td_optimizer *o, bool is_best,
                                 const td__checkpoint_source *from)
{
    uint64_t begin = td__clock_ns();
    TD_TRY(wait_idle(c));
    note(c, state, ps, o, is_best);
    c->from = from;
    TD_TRY(td__checkpoint_write(c));
    c->stalled = c->seconds = 1e-9 * (double)(td__clock_ns() - begin);
    pthread_mutex_lock(&c->lock);
    c->finished = true;
    pthread_mutex_unlock(&c->lock);
    return TD_OK;
}

td_status td__checkpointer_poll(td__checkpointer *c, bool *done, td__checkpoint_event *e)
{
    pthread_mutex_lock(&c->lock);
    *done = c->finished;
    td_status st = c->busy ? TD_OK : c->status;
    if (c->finished)
        *e = (td__checkpoint_event){.step = c->m.state.step,
                                    .path = c->path,
                                    .nbytes = c->nbytes,
                                    .seconds = c->seconds,
                                    .stalled = c->stalled};
    c->finished = false;
    pthread_mutex_unlock(&c->lock);
    return st ? TD_FAIL(st, "%s", c->error) : TD_OK;
}
