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
#include "train/append_file.h"
#include "train/event_json.h"
#include "train/run_dir.h"

typedef struct metrics_file {
    td__observer observer;
    td__append_file file;
    td__text line;
} metrics_file;

/* How many bytes of the file belong to steps up to `step`. */
static uint64_t kept_bytes(const td__file_map *m, uint64_t step)
{
    const char *text = (const char *)m->data;
    size_t at = 0;

    while (at < m->nbytes) {
        const char *end = memchr(text + at, '\n', m->nbytes - at);
        if (!end)
            break;
        size_t len = (size_t)(end - (text + at));
        json_t *line = json_loadb(text + at, len, JSON_REJECT_DUPLICATES, NULL);
        json_t *n = line ? json_object_get(line, "step") : NULL;
        bool keep = json_is_integer(n) && json_integer_value(n) >= 0 &&
                    (uint64_t)json_integer_value(n) <= step;
        json_decref(line);
        if (!keep)
            break;
        at += len + 1;
    }
    return at;
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
    td__json_end(&m->line, r);
    return write_line(m);
}

static td_status on_ranks(td__observer *o, const td__ranks_event *e)
{
    metrics_file *m = (metrics_file *)o;
    td__text_clear(&m->line);
    td__json_ranks(&m->line, e);
    return write_line(m);
}

td_status td__metrics_file_create(const char *dir, uint64_t from_step, td__observer **out)
{
    static const td__observer OBSERVER = {.begin = on_begin,
                                          .step = on_step,
                                          .eval = on_eval,
                                          .checkpoint = on_checkpoint,
                                          .end = on_end,
                                          .ranks = on_ranks};
    char path[TD__PATH];
    struct stat info;
    uint64_t keep = 0;

    *out = NULL;
    TD_TRY(td__run_dir_path(dir, "metrics.jsonl", path));
    if (from_step > 0 && stat(path, &info) == 0) {
        td__file_map map;
        TD_TRY(td__file_map_open(&map, path));
        keep = kept_bytes(&map, from_step);
        td__file_map_close(&map);
    }
    metrics_file *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "%s: no memory to write it", path);
    m->observer = OBSERVER;
    td_status st = td__append_open(&m->file, dir, "metrics.jsonl", keep);
    if (st) {
        td__free(m);
        return st;
    }
    *out = &m->observer;
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
