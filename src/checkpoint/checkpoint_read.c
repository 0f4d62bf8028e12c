/* checkpoint_read.c -- finding a whole checkpoint, and loading it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "graph/params.h"
#include "tensor/safetensors.h"
#include "tandem/tensor.h"
#include "checkpoint/checkpoint_impl.h"

enum { MOST_MOVES = 100 }; /* of `latest`, while what it names is removed before it was read */

/* ---- Names ----------------------------------------------------------------------------------- */

static int highest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static bool has(const uint64_t *steps, int n, uint64_t step)
{
    for (int i = 0; i < n; i++)
        if (steps[i] == step)
            return true;
    return false;
}

td_status td__checkpoint_list(const char *dir, uint64_t **out, int *count)
{
    int room = 0;
    uint64_t step;
    td_status st = TD_OK;

    *out = NULL;
    *count = 0;
    DIR *d = opendir(dir);
    if (!d)
        return TD_OK;
    for (const struct dirent *e; (e = readdir(d));) {
        const char *name = e->d_name + (td__is_replaced(e->d_name) ? strlen(TD__OLD_PREFIX) : 0);
        if (!td__step_parse(name, &step) || has(*out, *count, step))
            continue;
        if (*count == room) {
            room = room ? 2 * room : 64;
            uint64_t *more = td__realloc(*out, (size_t)room * sizeof *more);
            if (!more) {
                st = TD_FAIL(TD_ENOMEM, "%s: no memory for a list of checkpoints", dir);
                break;
            }
            *out = more;
        }
        (*out)[(*count)++] = step;
    }
    closedir(d);
    if (st) {
        td__free(*out);
        *out = NULL;
        *count = 0;
    } else if (*count) {
        qsort(*out, (size_t)*count, sizeof **out, highest_first);
    }
    return st;
}

bool td__checkpoint_pointer(const char *dir, const char *pointer, char name[TD__STEP_NAME])
{
    char path[TD__PATH];
    td__file_map map;
    uint64_t step;
    size_t n = 0;

    if (td__run_dir_path(dir, pointer, path) || access(path, F_OK) != 0 ||
        td__file_map_open(&map, path))
        return false;
    while (n < map.nbytes && n < TD__STEP_NAME - 1 && map.data[n] > ' ')
        n++;
    memcpy(name, map.data, n);
    name[n] = 0;
    td__file_map_close(&map);
    return td__step_parse(name, &step);
}

static bool is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Where the checkpoints of `path` are: of a run, or itself. */
static td_status folder_of(const char *path, char dir[TD__PATH])
{
    TD_TRY(td__run_dir_path(path, "checkpoints", dir));
    if (!is_dir(dir))
        snprintf(dir, TD__PATH, "%s", path);
    return TD_OK;
}

bool td__checkpoint_any(const char *path)
{
    char dir[TD__PATH];
    uint64_t *steps;
    int n;
    if (folder_of(path, dir) || td__checkpoint_list(dir, &steps, &n))
        return false;
    td__free(steps);
    return n > 0;
}

/* ---- Finding --------------------------------------------------------------------------------- */

static td_status verify_file(const char *dir, const td__manifest *m, td__checkpoint_file f)
{
    char path[TD__PATH];
    td__manifest now;

    TD_TRY(td__run_dir_path(dir, td__checkpoint_file_name(f), path));
    TD_TRY(td__manifest_hash(&now, f, path));
    if (now.file[f].nbytes != m->file[f].nbytes)
        return TD_FAIL(TD_EPROTO, "%s: damaged: %llu bytes, not %llu", path,
                       (unsigned long long)now.file[f].nbytes,
                       (unsigned long long)m->file[f].nbytes);
    if (strcmp(now.file[f].sha256, m->file[f].sha256) != 0)
        return TD_FAIL(TD_EPROTO, "%s: damaged: its sha256 is %.16s..., not %.16s...", path,
                       now.file[f].sha256, m->file[f].sha256);
    return TD_OK;
}

/* Read state.json and hold every file against it. */
static td_status verify(const char *dir, td__manifest *m)
{
    char path[TD__PATH];
    TD_TRY(td__run_dir_path(dir, TD__STATE_FILE, path));
    TD_TRY(td__manifest_read(m, path));
    for (int i = 0; i < TD__FILE_COUNT; i++)
        if (td__manifest_has(m, (td__checkpoint_file)i))
            TD_TRY(verify_file(dir, m, (td__checkpoint_file)i));
    return TD_OK;
}

static td_status look(const char *dir, td__checkpoint_info *out)
{
    td__manifest m;
    TD_TRY(verify(dir, &m));
    snprintf(out->path, sizeof out->path, "%s", dir);
    out->state = m.state;
    out->arithmetic = m.arithmetic;
    out->preprocessed = td__manifest_has(&m, TD__FILE_PREPROCESSING);
    out->model_nbytes = (size_t)m.file[TD__FILE_MODEL].nbytes;
    out->optimizer_nbytes = (size_t)m.file[TD__FILE_OPTIMIZER].nbytes;
    return TD_OK;
}

static td_status look_named(const char *dir, const char *name, td__checkpoint_info *out)
{
    char path[TD__PATH];
    char replaced[TD__PATH], old[TD__STEP_NAME + sizeof TD__OLD_PREFIX];
    TD_TRY(td__run_dir_path(dir, name, path));
    if (is_dir(path))
        return look(path, out);
    snprintf(old, sizeof old, TD__OLD_PREFIX "%s", name);
    TD_TRY(td__run_dir_path(dir, old, replaced));
    if (is_dir(replaced)) /* its writer died between two renames */
        return look(replaced, out);
    return TD_FAIL(TD_EINVAL, "%s: no such checkpoint", path);
}

/* A damaged one costs a warning, lack of memory the whole search. */
static td_status try_one(const char *dir, const char *name, td__checkpoint_info *out, bool *found)
{
    td_status st = look_named(dir, name, out);
    *found = !st;
    if (st == TD_ENOMEM)
        return st;
    if (st)
        TD_LOG(WARN, TRAIN, "%s; falling back to an older checkpoint", td_last_error());
    return TD_OK;
}

/* The one that `latest` names. A run that goes on may remove it before it was read: then `latest`
 * names another by now. */
static td_status try_latest(const char *dir, char name[TD__STEP_NAME], td__checkpoint_info *out,
                            bool *found)
{
    char now[TD__STEP_NAME];

    for (int i = 0; i < MOST_MOVES; i++) {
        if (!look_named(dir, name, out)) {
            *found = true;
            return TD_OK;
        }
        if (!td__checkpoint_pointer(dir, TD__LATEST_FILE, now) || strcmp(now, name) == 0)
            break;
        memcpy(name, now, sizeof now);
    }
    return try_one(dir, name, out, found);
}

static td_status find_newest(const char *dir, td__checkpoint_info *out)
{
    char latest[TD__STEP_NAME] = "", name[TD__STEP_NAME];
    uint64_t *steps;
    int n;
    bool found = false;
    td_status st = TD_OK;

    if (td__checkpoint_pointer(dir, TD__LATEST_FILE, latest))
        TD_TRY(try_latest(dir, latest, out, &found));
    if (found)
        return TD_OK;
    TD_TRY(td__checkpoint_list(dir, &steps, &n));
    for (int i = 0; i < n && !found && !st; i++) {
        td__step_name(steps[i], name);
        if (strcmp(name, latest) != 0)
            st = try_one(dir, name, out, &found);
    }
    td__free(steps);
    if (st || found)
        return st;
    return n ? TD_FAIL(TD_EPROTO, "%s: none of %d checkpoints is intact", dir, n)
             : TD_FAIL(TD_EINVAL, "%s: no checkpoint", dir);
}

td_status td__checkpoint_find(const char *path, const char *which, td__checkpoint_info *out)
{
    char dir[TD__PATH], name[TD__STEP_NAME];

    memset(out, 0, sizeof *out);
    TD_TRY(td__run_dir_path(path, TD__STATE_FILE, dir));
    if (!which && access(dir, F_OK) == 0)
        return look(path, out);
    TD_TRY(folder_of(path, dir));
    if (!is_dir(dir))
        return TD_FAIL(TD_EINVAL, "%s: not a directory with checkpoints", dir);
    if (!which)
        return find_newest(dir, out);
    uint64_t step;
    if (strcmp(which, TD__BEST_FILE) == 0) {
        if (!td__checkpoint_pointer(dir, TD__BEST_FILE, name))
            return TD_FAIL(TD_EINVAL, "%s: no checkpoint is marked as the best", dir);
        which = name;
    } else if (!td__step_parse(which, &step)) {
        return TD_FAIL(TD_EINVAL, "%s: '%s' is not the name of a checkpoint (step-00000100, best)",
                       dir, which);
    }
    return look_named(dir, which, out);
}

/* ---- Preprocessing --------------------------------------------------------------------------- */

/* That of one checkpoint; none if it has none, or is damaged. */
static td_status read_preprocessing(const char *dir, td__text *out)
{
    char path[TD__PATH];
    td__manifest m;
    td__file_map map;

    TD_TRY(td__run_dir_path(dir, TD__STATE_FILE, path));
    TD_TRY(td__manifest_read(&m, path));
    if (!td__manifest_has(&m, TD__FILE_PREPROCESSING))
        return TD_OK;
    TD_TRY(verify_file(dir, &m, TD__FILE_PREPROCESSING));
    TD_TRY(td__run_dir_path(dir, td__checkpoint_file_name(TD__FILE_PREPROCESSING), path));
    TD_TRY(td__file_map_open(&map, path));
    td__text_append(out, (const char *)map.data, map.nbytes);
    td__file_map_close(&map);
    return td__text_status(out);
}

td_status td__checkpoint_preprocessing(const char *path, td__text *out)
{
    char dir[TD__PATH], name[TD__STEP_NAME], one[TD__PATH];
    uint64_t *steps;
    int n;
    td_status st = TD_OK;

    TD_TRY(td__run_dir_path(path, TD__STATE_FILE, dir));
    if (access(dir, F_OK) == 0)
        return read_preprocessing(path, out);
    TD_TRY(folder_of(path, dir));
    TD_TRY(td__checkpoint_list(dir, &steps, &n));
    for (int i = 0; i < n && !out->used && st != TD_ENOMEM; i++) {
        td__step_name(steps[i], name);
        st = td__run_dir_path(dir, name, one);
        if (!st)
            st = read_preprocessing(one, out);
    }
    td__free(steps);
    return st == TD_ENOMEM ? st : TD_OK;
}

td_status td__checkpoint_processor(const char *path, td__processor *out)
{
    char dir[TD__PATH], name[TD__STEP_NAME], one[TD__PATH], file[TD__PATH];
    uint64_t *steps;
    int n;

    *out = (td__processor){.isa = ""};
    TD_TRY(folder_of(path, dir));
    TD_TRY(td__checkpoint_list(dir, &steps, &n));
    for (int i = 0; i < n && !out->isa[0]; i++) {
        td__manifest m;
        td__step_name(steps[i], name);
        if (td__run_dir_path(dir, name, one) || td__run_dir_path(one, TD__STATE_FILE, file) ||
            td__manifest_read(&m, file))
            continue; /* a damaged one: whoever loads it says so */
        *out = m.processor;
    }
    td__free(steps);
    return TD_OK;
}

/* ---- Loading --------------------------------------------------------------------------------- */

static td_status state_tensor(const td_safetensors *s, const char *path, const char *state,
                              const td_param_info *info, td_tensor *out)
{
    char name[1024];
    int len = snprintf(name, sizeof name, "%s/%s", state, info->name);
    int k = len < (int)sizeof name ? td_safetensors_find(s, name) : -1;
    if (k < 0)
        return TD_FAIL(TD_EINVAL, "%s: no tensor '%s'", path, name);
    *out = td_safetensors_tensor(s, k);
    if (!td_shape_equal(&out->shape, &info->shape) || out->dtype != TD_F32)
        return TD_FAIL(TD_EINVAL, "%s: the shape or type of '%s' differs from the model's", path,
                       name);
    return TD_OK;
}

/* Check all, or copy all. */
static td_status walk_optimizer(const td_safetensors *s, const char *path, const td_params *ps,
                                td_optimizer *o, bool copy)
{
    for (int k = 0; k < td_optimizer_state_count(o); k++)
        for (int i = 0; i < td_params_count(ps); i++) {
            td_param_info info = td_params_info(ps, i);
            td_tensor from, to;
            td__mapping map;
            if (info.is_state)
                continue;
            TD_TRY(state_tensor(s, path, td_optimizer_state_name(o, k), &info, &from));
            if (!copy)
                continue;
            TD_TRY(td__params_map_at(ps, i, td_optimizer_state(o, k, NULL) + info.offset,
                                     TD_MAP_WRITE, &map));
            td_status st = td_tensor_wrap(&to, TD_F32, info.shape, map.at);
            if (!st)
                st = td_tensor_copy(&from, &to);
            if (st)
                td__mem_map_drop(&map);
            TD_TRY(st);
            TD_TRY(td__params_unmap_tensor(ps, i, &map));
        }
    return TD_OK;
}

static td_status check_optimizer(const td__manifest *m, const char *path, const td_optimizer *o)
{
    if (strcmp(m->optimizer, td_optimizer_name(o)) != 0)
        return TD_FAIL(TD_EINVAL, "%s: the optimizer is %s, but the job trains with %s", path,
                       m->optimizer, td_optimizer_name(o));
    return TD_OK;
}

static td_status load_with_optimizer(const char *model, const char *path, const td__manifest *m,
                                     td_params *ps, td_optimizer *o)
{
    td_safetensors *s;
    TD_TRY(check_optimizer(m, path, o));
    TD_TRY(td_safetensors_open(path, &s));
    td_status st = walk_optimizer(s, path, ps, o, false); /* nothing changes unless all fits */
    if (!st)
        st = td_params_load(ps, model);
    if (!st)
        st = walk_optimizer(s, path, ps, o, true);
    if (!st)
        td_optimizer_set_steps(o, m->optimizer_steps);
    td_safetensors_close(s);
    return st;
}

td_status td__checkpoint_load(const td__checkpoint_info *info, td_params *ps, td_optimizer *o)
{
    td__manifest m;
    char model[TD__PATH], optimizer[TD__PATH];
    TD_TRY(verify(info->path, &m));
    TD_TRY(td__run_dir_path(info->path, td__checkpoint_file_name(TD__FILE_MODEL), model));
    TD_TRY(td__run_dir_path(info->path, td__checkpoint_file_name(TD__FILE_OPTIMIZER), optimizer));
    return o ? load_with_optimizer(model, optimizer, &m, ps, o) : td_params_load(ps, model);
}

/* ---- Tensor by tensor ------------------------------------------------------------------------ */

struct td__checkpoint_reader {
    td_safetensors *model, *optimizer;
    const td_params *ps;
    const td_optimizer *o;
    char path[TD__PATH]; /* of the optimizer's file */
};

static td_status open_files(const td__checkpoint_info *info, td_optimizer *o,
                            td__checkpoint_reader *r)
{
    td__manifest m;
    char model[TD__PATH];

    TD_TRY(verify(info->path, &m));
    TD_TRY(td__run_dir_path(info->path, td__checkpoint_file_name(TD__FILE_MODEL), model));
    TD_TRY(td__run_dir_path(info->path, td__checkpoint_file_name(TD__FILE_OPTIMIZER), r->path));
    if (o)
        TD_TRY(check_optimizer(&m, r->path, o));
    TD_TRY(td_safetensors_open(model, &r->model));
    TD_TRY(td__params_check_file(r->ps, r->model, model));
    if (!o)
        return TD_OK;
    TD_TRY(td_safetensors_open(r->path, &r->optimizer));
    TD_TRY(walk_optimizer(r->optimizer, r->path, r->ps, o, false));
    td_optimizer_set_steps(o, m.optimizer_steps);
    return TD_OK;
}

td_status td__checkpoint_open(const td__checkpoint_info *info, const td_params *ps, td_optimizer *o,
                              td__checkpoint_reader **out)
{
    *out = NULL;
    td__checkpoint_reader *r = td__calloc(1, sizeof *r);
    if (!r)
        return TD_FAIL(TD_ENOMEM, "%s: no memory to read it", info->path);
    r->ps = ps;
    r->o = o;
    td_status st = open_files(info, o, r);
    if (st) {
        td__checkpoint_close(r);
        return st;
    }
    *out = r;
    return TD_OK;
}

void td__checkpoint_close(td__checkpoint_reader *r)
{
    if (!r)
        return;
    td_safetensors_close(r->model);
    td_safetensors_close(r->optimizer);
    td__free(r);
}

td_status td__checkpoint_read(const td__checkpoint_reader *r, int i, float *to)
{
    td_param_info info = td_params_info(r->ps, i);
    td_tensor here;
    int at = td_safetensors_find(r->model, info.name);
    td_tensor from = td_safetensors_tensor(r->model, at);
    TD_TRY(td_tensor_wrap(&here, TD_F32, info.shape, to));
    TD_TRY(td_tensor_copy(&from, &here));
    td__safetensors_forget(r->model, at);
    return TD_OK;
}

const float *td__checkpoint_state(const td__checkpoint_reader *r, int k, int i)
{
    td_param_info info = td_params_info(r->ps, i);
    td_tensor t;
    td_status st = state_tensor(r->optimizer, r->path, td_optimizer_state_name(r->o, k), &info, &t);
    TD_ASSERT(!st, "state %d of '%s' was there", k, info.name);
    return t.data;
}
