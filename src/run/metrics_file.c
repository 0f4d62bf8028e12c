/* metrics_file.c -- metrics.jsonl: every event of a run as a line of JSON.
 *
 * Each line is one write, so that a killed run leaves whole lines but for the last. On resume the
 * file is cut before the first line that is broken or speaks of a step after the checkpoint: those
 * steps are about to happen again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "run/append_file.h"
#include "run/event_json.h"
#include "run/run_dir.h"

typedef struct metrics_file {
    td__observer observer;
    td__append_file file;
    td__text line;
} metrics_file;

/* What of a file is true of a run that has come to `step` and to the validation of step `valid`. */
typedef struct kept {
    uint64_t step, valid;
    bool again;                     /* the end, if it is there, is about to happen again as well */
    uint64_t last_step, last_valid; /* of the lines kept; 0: none */
} kept;

/* *next: it is the beginning of a run from the step after on, and stays if something follows that
 * does: who took over then wrote of the step before what its predecessor had not. */
static bool keeps(kept *k, const json_t *line, bool *next)
{
    const json_t *n = json_object_get(line, "step");
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const char *part = json_string_value(json_object_get(line, "part"));
    if (!json_is_integer(n) || json_integer_value(n) < 0)
        return false;
    uint64_t step = (uint64_t)json_integer_value(n);
    bool eval = kind && strcmp(kind, "eval") == 0 && part && strcmp(part, "valid") == 0;
    *next = kind && strcmp(kind, "begin") == 0 && step == k->step + 1;
    if (*next)
        return true;
    if (step > (eval ? k->valid : k->step))
        return false;
    if (k->again && step == k->step && kind && strcmp(kind, "end") == 0)
        return false;
    if (eval)
        k->last_valid = step;
    if (kind && strcmp(kind, "step") == 0)
        k->last_step = step;
    return true;
}

/* How many bytes of the file belong to it. */
static uint64_t kept_bytes(const td__file_map *m, kept *k)
{
    const char *text = (const char *)m->data;
    size_t at = 0, good = 0;

    while (at < m->nbytes) {
        const char *end = memchr(text + at, '\n', m->nbytes - at);
        if (!end)
            break;
        size_t len = (size_t)(end - (text + at));
        json_t *line = json_loadb(text + at, len, JSON_REJECT_DUPLICATES, NULL);
        bool next = false, keep = line && keeps(k, line, &next);
        json_decref(line);
        if (!keep)
            break;
        at += len + 1;
        good = next ? good : at;
    }
    return good;
}

static td_status write_line(metrics_file *m)
{
    TD_TRY(td__text_status(&m->line));
    return td__append_write(&m->file, m->line.data, m->line.used);
}

static td_status on_begin(td__observer *o, const td__train_info *e)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    td__json_begin(&m->line, e);
    return write_line(m);
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    td__json_step(&m->line, e);
    return write_line(m);
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    td__json_eval(&m->line, e);
    return write_line(m);
}

static td_status on_checkpoint(td__observer *o, const td__checkpoint_event *e)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    td__json_checkpoint(&m->line, e);
    return write_line(m);
}

static td_status on_end(td__observer *o, const td__train_result *r)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    if (r->pipeline)
        td__json_pipeline(&m->line, r->step, r->pipeline);
    td__json_end(&m->line, r);
    TD_TRY(write_line(m));
    return td__append_flush(&m->file);
}

static td_status on_ranks(td__observer *o, const td__ranks_event *e)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    td__json_ranks(&m->line, e);
    return write_line(m);
}

static td_status on_order(td__observer *o, const td__order_event *e)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    td__json_order(&m->line, e);
    return write_line(m);
}

/* The bytes of the file to keep. copy: into a file of its own under the same name. */
static td_status read_kept(const char *path, bool copy, kept *k, uint64_t *nbytes)
{
    td__file_map map;
    struct stat info;
    td__file_out f;
    td_status st = TD_OK;

    *nbytes = 0;
    if (stat(path, &info) != 0)
        return TD_OK;
    TD_TRY(td__file_map_open(&map, path));
    if (k->step > 0)
        *nbytes = kept_bytes(&map, k);
    if (copy)
        st = td__file_out_open(&f, path);
    if (copy && !st) {
        td__file_out_write(&f, map.data, (size_t)*nbytes);
        st = td__file_out_commit(&f);
    }
    td__file_map_close(&map);
    if (st ==
        TD_EIO) { /* a full disk: the process that has the old one open is dead, or soon will be */
        TD_LOG(WARN, TRAIN, "%s", td_last_error());
        st = TD_OK;
    }
    return st;
}

static td_status create(const char *dir, bool take_over, kept *k, td__observer **out)
{
    static const td__observer OBSERVER = {.begin = on_begin,
                                          .step = on_step,
                                          .eval = on_eval,
                                          .checkpoint = on_checkpoint,
                                          .end = on_end,
                                          .ranks = on_ranks,
                                          .order = on_order};
    char path[TD__PATH];
    uint64_t keep = 0;

    *out = NULL;
    TD_TRY(td__run_dir_path(dir, "metrics.jsonl", path));
    TD_TRY(read_kept(path, take_over, k, &keep));
    metrics_file *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "%s: no memory to write it", path);
    m->observer = OBSERVER;
    td_status st = td__append_open(&m->file, dir, "metrics.jsonl", keep);
    if (st) {
        td__free(m);
        return st;
    }
    m->file.holds = take_over;
    *out = &m->observer;
    return TD_OK;
}

td_status td__metrics_file_create(const char *dir, uint64_t from_step, td__observer **out)
{
    return create(dir, false, &(kept){.step = from_step, .valid = from_step}, out);
}

td_status td__metrics_file_take_over(const char *dir, uint64_t step, uint64_t valid,
                                     uint64_t *told_step, uint64_t *told_valid, td__observer **out)
{
    kept k = {.step = step, .valid = valid, .again = true};
    TD_TRY(create(dir, true, &k, out));
    *told_step = k.last_step;
    *told_valid = k.last_valid;
    return TD_OK;
}

void td__metrics_file_destroy(td__observer *o)
{
    metrics_file *m = (metrics_file *)o;
    if (!m)
        return;
    td__append_close(&m->file);
    td__text_fini(&m->line);
    td__free(m);
}
