/* checkpoint.c -- saving checkpoints in the background.
 *
 * What the caller waits for is a copy of the blocks. The thread then goes, in this order:
 *
 *   1. .tmp-step-N/ with model.safetensors, optimizer.safetensors, and state.json last; each file
 *      is written, fsynced and renamed into its name, and so is the directory that holds them
 *   2. rename .tmp-step-N to step-N (if that is there already, the two are exchanged at once, and
 *      the old one is then the temporary one; where the file system cannot do that, the old one
 *      becomes .old-step-N first); fsync the directory above
 *   3. replace `best` where it is the best, then `latest`: a run that goes on from it takes for
 *      granted that it is marked
 *   4. remove what is beyond `keep`: rename it to a temporary name first, so that a checkpoint
 *      half removed is never taken for a whole one
 *
 * A crash between any two of these leaves a whole checkpoint; the temporary names are swept up when
 * the next run begins. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
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
#include "base/file.h"
#include "base/log.h"
#include "device/kernels/kernels.h"
#include "graph/params.h"
#include "tandem/tensor.h"
#include "tensor/safetensors.h"
#include "checkpoint/checkpoint_impl.h"

enum { PATIENCE_MS = 600000, TEXT = 1024, LOCK_MS = 2000, LOCK_POLL_MS = 2 };

struct td__checkpointer {
    char dir[TD__PATH];
    int dir_fd; /* locked, for as long as we live */
    int keep;
    td__points *points; /* NULL: nobody counts what is done to files */
    pthread_t thread;
    bool started;
    uint32_t patience_ms;
    pthread_mutex_t lock; /* of the six below; nothing else is taken under it */
    pthread_cond_t changed;
    bool busy, stop, finished; /* finished: a save that nobody has polled yet */
    bool given_up;             /* nobody waits for the thread: it destroys this when it ends */
    td_status status;          /* of the last save */
    char error[TEXT];
    /* The save under way: the caller's while not busy, the thread's while busy. */
    td__manifest m;
    bool is_best;
    td_params *copy;     /* of the caller's; NULL: nothing was saved yet */
    const td_params *ps; /* whose tensors are written: the copy, or what `from` shows */
    const char *state_name[TD_OPTIM_MAX_STATE];
    float *states;
    int n_states;
    size_t states_nbytes, stride;
    td__block_copies blocks;           /* beside them */
    td__text preprocessing;            /* of all saves; empty: none */
    const td__checkpoint_source *from; /* NULL: the copies are saved */
    double stalled, seconds;
    size_t nbytes;
    char path[TD__PATH];
};

/* ---- Writing (the thread) -------------------------------------------------------------------- */

/* The tensors of a file: of the model, or one per state and param, "exp_avg/fc1.weight". */
typedef struct listing {
    td__checkpointer *c;
    td_tensor *tensors;
    td_named_tensor *items;
    int *state, *param; /* by item */
    int n;
} listing;

static td_status list_tensor(listing *l, td__arena *a, int k, int i, float *data)
{
    td_param_info info = td_params_info(l->c->ps, i);
    td_named_tensor *item = &l->items[l->n];
    item->tensor = &l->tensors[l->n];
    item->name = k < 0 ? info.name : td__arena_printf(a, "%s/%s", l->c->state_name[k], info.name);
    l->state[l->n] = k;
    l->param[l->n++] = i;
    if (!item->name)
        return TD_FAIL(TD_ENOMEM, "no memory for the names of a checkpoint");
    return td_tensor_wrap(&l->tensors[l->n - 1], TD_F32, info.shape, data);
}

static td_status list_file(listing *l, td__arena *a, td__checkpoint_file f, float *empty)
{
    td__checkpointer *c = l->c;
    int states = f == TD__FILE_MODEL ? 1 : c->n_states;
    int n = td_params_count(c->ps);
    size_t most = (size_t)states * (size_t)n + (size_t)c->blocks.list.n + 1;
    float *block = c->from ? NULL : td_params_block(c->copy, NULL);
    l->tensors = td__arena_alloc(a, most * sizeof *l->tensors);
    l->items = td__arena_alloc(a, most * sizeof *l->items);
    l->state = td__arena_alloc(a, most * sizeof *l->state);
    l->param = td__arena_alloc(a, most * sizeof *l->param);
    if (!l->tensors || !l->items || !l->state || !l->param)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu names of a checkpoint", most);
    for (int k = 0; k < states; k++)
        for (int i = 0; i < n; i++) {
            td_param_info info = td_params_info(c->ps, i);
            if (f == TD__FILE_MODEL)
                TD_TRY(list_tensor(l, a, -1, i, block ? block + info.offset : empty));
            else if (!info.is_state)
                TD_TRY(list_tensor(
                    l, a, k, i, block ? c->states + (size_t)k * c->stride + info.offset : empty));
        }
    if (f == TD__FILE_MODEL || c->from)
        return TD_OK;
    TD_TRY(td__block_copies_list(&c->blocks, l->tensors + l->n, l->items + l->n));
    l->n += c->blocks.list.n;
    return TD_OK;
}

static td_status check_finite(const td_params *ps, int i, const float *data)
{
    td_param_info info = td_params_info(ps, i);
    for (size_t k = 0; k < info.count; k++)
        if (!isfinite(data[k]))
            return TD_FAIL(TD_EINVAL, "'%s' has NaN or Inf: no checkpoint was written", info.name);
    return TD_OK;
}

static td_status show(void *user, int i)
{
    const listing *l = user;
    float *data;
    TD_TRY(l->c->from->show(l->c->from->user, l->state[i], l->param[i], &data));
    l->tensors[i].data = data;
    return l->state[i] < 0 ? check_finite(l->c->ps, l->param[i], data) : TD_OK;
}

static td_status write_tensors(td__checkpointer *c, td__checkpoint_file f, const char *path)
{
    td__arena *a;
    float empty = 0; /* an address for tensors that are not there yet */
    listing l = {.c = c};

    TD_TRY(td__arena_create(&a));
    td_status st = list_file(&l, a, f, &empty);
    if (!st)
        st = td__safetensors_save(path, l.items, l.n, NULL, 0,
                                  c->from ? &(td__st_show){show, &l} : NULL);
    td__arena_destroy(a);
    return st;
}

static td_status write_preprocessing(const td__checkpointer *c, const char *path)
{
    td__file_out f;
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, c->preprocessing.data, c->preprocessing.used);
    return td__file_out_commit(&f);
}

/* The names of tensors and the points are not there any more when nobody waits for the thread. */
static td_status check_wanted(td__checkpointer *c)
{
    pthread_mutex_lock(&c->lock);
    bool given_up = c->given_up;
    pthread_mutex_unlock(&c->lock);
    return given_up ? TD_FAIL(TD_EABORTED, "%s: given up", c->path) : TD_OK;
}

/* What came before may have taken long, and so may the point. */
static td_status pass(td__checkpointer *c, const char *op)
{
    TD_TRY(check_wanted(c));
    TD_TRY(td__point(c->points, TD_POINT_FILE, op));
    return check_wanted(c);
}

static td_status write_files(td__checkpointer *c, const char *temp)
{
    char path[TD__PATH];
    c->nbytes = 0;
    for (int i = 0; i < TD__FILE_COUNT; i++) {
        td__checkpoint_file f = (td__checkpoint_file)i;
        if (f == TD__FILE_PREPROCESSING && !c->preprocessing.used)
            continue;
        TD_TRY(pass(c, td__checkpoint_file_name(f)));
        TD_TRY(td__run_dir_path(temp, td__checkpoint_file_name(f), path));
        TD_TRY(f == TD__FILE_PREPROCESSING ? write_preprocessing(c, path)
                                           : write_tensors(c, f, path));
        TD_TRY(td__manifest_hash(&c->m, f, path));
        c->nbytes += (size_t)c->m.file[i].nbytes;
    }
    TD_TRY(check_wanted(c));
    if (c->from)
        snprintf(c->m.state.digest, sizeof c->m.state.digest, "%s", c->from->digest);
    else
        TD_TRY(td_params_digest(c->copy, c->m.state.digest));
    TD_TRY(td__run_dir_path(temp, TD__STATE_FILE, path));
    TD_TRY(pass(c, TD__STATE_FILE));
    TD_TRY(td__manifest_write(&c->m, path));
    return td__checkpoint_sync_dir(temp);
}

td_status td__checkpoint_point(const char *dir, td__points *points, const char *pointer,
                               const char *name)
{
    char path[TD__PATH], line[TD__STEP_NAME + 1];
    td__file_out f;
    TD_TRY(td__run_dir_path(dir, pointer, path));
    TD_TRY(td__point(points, TD_POINT_FILE, pointer));
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, line, (size_t)snprintf(line, sizeof line, "%s\n", name));
    return td__file_out_commit(&f);
}

static td_status prune(const td__checkpointer *c)
{
    char latest[TD__STEP_NAME] = "", best[TD__STEP_NAME] = "", name[TD__STEP_NAME];
    uint64_t *steps;
    int n;
    td_status st = TD_OK;

    (void)td__checkpoint_pointer(c->dir, TD__LATEST_FILE, latest);
    (void)td__checkpoint_pointer(c->dir, TD__BEST_FILE, best);
    TD_TRY(td__checkpoint_list(c->dir, &steps, &n));
    for (int i = c->keep; i < n && !st; i++) {
        td__step_name(steps[i], name);
        if (strcmp(name, latest) == 0 || strcmp(name, best) == 0)
            continue;
        st = td__checkpoint_remove(c->dir, name);
    }
    td__free(steps);
    return st;
}

static td_status point_at(td__checkpointer *c, const char *pointer, const char *name)
{
    TD_TRY(check_wanted(c));
    return td__checkpoint_point(c->dir, c->points, pointer, name);
}

static td_status write_checkpoint(td__checkpointer *c)
{
    char name[TD__STEP_NAME], hidden[TD__STEP_NAME + sizeof TD__TEMP_PREFIX], temp[TD__PATH];

    td__step_name(c->m.state.step, name);
    snprintf(hidden, sizeof hidden, TD__TEMP_PREFIX "%s", name);
    TD_TRY(td__run_dir_path(c->dir, hidden, temp));
    TD_TRY(td__run_dir_path(c->dir, name, c->path));
    for (int i = 0; !c->from && i < td_params_count(c->copy); i++)
        TD_TRY(check_finite(c->copy, i,
                            td_params_block(c->copy, NULL) + td_params_info(c->copy, i).offset));
    td__checkpoint_remove_dir(temp);
    if (mkdir(temp, 0777) != 0)
        return td__checkpoint_disk_failed(temp, "make it");
    td_status st = write_files(c, temp);
    if (!st)
        st = pass(c, "rename");
    if (!st)
        st = td__checkpoint_install(c->dir, temp, name, c->path);
    if (!st)
        st = pass(c, "remove");
    td__checkpoint_remove_dir(temp);
    if (st)
        return st;
    TD_TRY(td__checkpoint_sync_dir(c->dir));
    if (c->is_best)
        TD_TRY(point_at(c, TD__BEST_FILE, name));
    TD_TRY(point_at(c, TD__LATEST_FILE, name));
    TD_TRY(pass(c, "prune"));
    return prune(c);
}

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
        td_status st = write_checkpoint(c);
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
            TD_LOG(WARN, TRAIN, "%s: taken over from a process that does not let go of it", c->dir);
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
    for (int k = 0; k < c->n_states; k++)
        TD_TRY(td__mem_read(td__params_device(ps), c->states + (size_t)k * c->stride,
                            td_optimizer_state(o, k, NULL), c->stride * sizeof(float)));
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
    TD_TRY(write_checkpoint(c));
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
