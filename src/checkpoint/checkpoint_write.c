/* checkpoint_write.c -- the thread's side of a save. It goes, in this order:
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
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "checkpoint/checkpoint_impl.h"
#include "graph/params.h"
#include "tensor/safetensors.h"

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

/* What came before may have taken long, and so may the point: by then the run may have given up, or
 * this process was stopped and another one has taken its place. */
static td_status pass(td__checkpointer *c, const char *op)
{
    TD_TRY(check_wanted(c));
    TD_TRY(td__point(c->points, TD_POINT_FILE, op));
    TD_TRY(check_wanted(c));
    return td__checkpoint_writer_check(c);
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
    TD_TRY(pass(c, pointer));
    return td__checkpoint_point(c->dir, NULL, pointer, name);
}

td_status td__checkpoint_write(td__checkpointer *c)
{
    char name[TD__STEP_NAME], temp[TD__PATH];
    char hidden[sizeof TD__TEMP_PREFIX + TD__STEP_NAME + TD__WRITER_TOKEN];

    td__step_name(c->m.state.step, name);
    snprintf(hidden, sizeof hidden, TD__TEMP_PREFIX "%s%s%s", name, c->took_over ? "-" : "",
             c->took_over ? c->writer : "");
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
