/* checkpoint_state.c -- state.json, and the names of checkpoints.
 *
 * The file carries the sha256 of every other file and, under "sha256", its own: over the object
 * without that key, written compactly with sorted keys. A flipped bit in any number is noticed.
 * Numbers that JSON cannot say (NaN before the first validation) are strings. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/checkpoint_impl.h"

#define FORMAT "tandem checkpoint"
enum { VERSION = 1, MAX_STATE_BYTES = 1 << 20, HASH_PIECE = 1 << 22 };
#define REALS JSON_REAL_PRECISION(17)

static const char *const NAMES[TD__FILE_COUNT] = {
#define X(id, name) [TD__FILE_##id] = name,
    TD__CHECKPOINT_FILE_MAP(X)
#undef X
};

const char *td__checkpoint_file_name(td__checkpoint_file f)
{
    return NAMES[f];
}

void td__step_name(uint64_t step, char name[TD__STEP_NAME])
{
    snprintf(name, TD__STEP_NAME, "step-%08" PRIu64, step);
}

bool td__step_parse(const char *name, uint64_t *step)
{
    char again[TD__STEP_NAME];
    if (strncmp(name, "step-", 5) != 0)
        return false;
    *step = strtoull(name + 5, NULL, 10);
    td__step_name(*step, again);
    return strcmp(again, name) == 0;
}

bool td__is_replaced(const char *name)
{
    uint64_t step;
    size_t n = sizeof TD__OLD_PREFIX - 1;
    return strncmp(name, TD__OLD_PREFIX, n) == 0 && td__step_parse(name + n, &step);
}

td_status td__manifest_hash(td__manifest *m, td__checkpoint_file f, const char *path)
{
    td__file_map map;
    uint8_t digest[TD_SHA256_BYTES];
    TD_TRY(td__file_map_open(&map, path));
    td__sha256 h;
    td_status st = td__sha256_init(&h);
    for (size_t at = 0; !st && at < map.nbytes; at += HASH_PIECE) {
        size_t n = map.nbytes - at < HASH_PIECE ? map.nbytes - at : HASH_PIECE;
        td__sha256_update(&h, map.data + at, n);
        td__file_map_forget(&map, at, n);
    }
    m->file[f].nbytes = map.nbytes;
    td__file_map_close(&map);
    if (!st) {
        td__sha256_final(&h, digest);
        td__sha256_hex(digest, m->file[f].sha256);
    }
    return st;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

static json_t *integer(uint64_t v)
{
    return json_integer((json_int_t)v);
}

static json_t *make_files(const td__manifest *m)
{
    json_t *files = json_object();
    for (int i = 0; i < TD__FILE_COUNT; i++)
        if (td__manifest_has(m, (td__checkpoint_file)i))
            json_object_set_new(files, NAMES[i],
                                json_pack("{s:o, s:s}", "nbytes", integer(m->file[i].nbytes),
                                          "sha256", m->file[i].sha256));
    return files;
}

static json_t *make_json(const td__manifest *m)
{
    const td__train_state *s = &m->state;
    json_t *schedule =
        json_pack("{s:o, s:o, s:i, s:i, s:b}", "factor", number(s->schedule.factor), "best",
                  number(s->schedule.best), "bad", s->schedule.bad, "cooldown",
                  s->schedule.cooldown, "started", (int)s->schedule.started);
    json_t *early = json_pack("{s:o, s:o, s:o, s:i}", "best", number(s->best), "best_step",
                              integer(s->best_step), "valid_step", integer(s->valid_step),
                              "bad_validations", s->bad_validations);
    if (s->watch[0])
        json_object_set_new(early, "watch", json_string(s->watch));
    json_t *optimizer =
        json_pack("{s:s, s:o}", "name", m->optimizer, "steps", integer(m->optimizer_steps));
    json_t *processor = json_pack("{s:s, s:s, s:s}", "instructions", td__isa_name(td__cpu_isa()),
                                  "kind", td__cpu_kind(), "more", td__cpu_more());
    if (s->gpu[0])
        json_object_set_new(processor, "gpu", json_string(s->gpu));
    return json_pack("{s:s, s:i, s:i, s:o, s:o, s:I, s:I, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, "
                     "s:o}",
                     "format", FORMAT, "version", VERSION, "arithmetic", TD__ARITHMETIC, "step",
                     integer(s->step), "epoch", integer(s->epoch), "batch_in_epoch",
                     (json_int_t)s->batch_in_epoch, "batch", (json_int_t)s->batch, "seed",
                     integer(s->seed), "samples", integer(s->samples), "job_digest", s->job_digest,
                     "digest", s->digest, "schedule", schedule, "early_stopping", early,
                     "optimizer", optimizer, "files", make_files(m), "processor", processor);
}

static int append(const char *data, size_t nbytes, void *text)
{
    td__text_append(text, data, nbytes);
    return 0;
}

static td_status own_hash(const json_t *root, const char *path, char hex[TD_SHA256_HEX])
{
    td__text text = {0};
    uint8_t digest[TD_SHA256_BYTES];
    if (json_dump_callback(root, append, &text, JSON_COMPACT | JSON_SORT_KEYS | REALS) != 0)
        text.failed = true;
    td_status st = td__text_status(&text);
    if (!st)
        st = td__sha256_of(text.data, text.used, digest);
    else
        st = TD_FAIL(TD_ENOMEM, "%s: no memory for it", path);
    if (!st)
        td__sha256_hex(digest, hex);
    td__text_fini(&text);
    return st;
}

static td_status write_text(const td__text *text, const char *path)
{
    td__file_out f;
    TD_TRY(td__text_status(text));
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, text->data, text->used);
    return td__file_out_commit(&f);
}

td_status td__manifest_write(const td__manifest *m, const char *path)
{
    char hex[TD_SHA256_HEX];
    td__text text = {0};
    td_status st = TD_OK;
    json_t *root = make_json(m);
    if (!root)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for it", path);
    TD_TRY_OR(st, done, own_hash(root, path, hex));
    if (json_object_set_new(root, "sha256", json_string(hex)) != 0 ||
        json_dump_callback(root, append, &text, JSON_INDENT(2) | JSON_SORT_KEYS | REALS) != 0)
        text.failed = true;
    td__text_add(&text, "\n");
    st = write_text(&text, path);
done:
    td__text_fini(&text);
    json_decref(root);
    return st;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool get_number(const json_t *v, double *out)
{
    const char *text = json_string_value(v);
    if (!text) {
        *out = json_number_value(v);
        return json_is_number(v);
    }
    *out = strcmp(text, "nan") == 0 ? (double)NAN
           : text[0] == '-'         ? -(double)INFINITY
                                    : (double)INFINITY;
    return true;
}

static bool copy_text(char *to, size_t nbytes, const char *from)
{
    return snprintf(to, nbytes, "%s", from) < (int)nbytes;
}

bool td__manifest_has(const td__manifest *m, td__checkpoint_file f)
{
    return m->file[f].sha256[0];
}

static bool read_files(json_t *files, td__manifest *m)
{
    for (int i = 0; i < TD__FILE_COUNT; i++) {
        json_int_t nbytes;
        const char *hex;
        if (i == TD__FILE_PREPROCESSING && !json_object_get(files, NAMES[i]))
            continue;
        if (json_unpack(json_object_get(files, NAMES[i]), "{s:I, s:s}", "nbytes", &nbytes, "sha256",
                        &hex) != 0 ||
            nbytes < 0 || !copy_text(m->file[i].sha256, sizeof m->file[i].sha256, hex))
            return false;
        m->file[i].nbytes = (uint64_t)nbytes;
    }
    return true;
}

/* Numbers that no checkpoint has been written with would overflow where they are used. */
static bool in_range(const td__manifest *m)
{
    const td__train_state *s = &m->state;
    const uint64_t counts[] = {s->epoch, s->samples, s->best_step, s->valid_step,
                               m->optimizer_steps};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] > INT64_MAX) /* was negative */
            return false;
    return s->step <= UINT32_MAX && s->batch >= 0 && s->batch_in_epoch >= 0 &&
           (!s->batch || s->batch_in_epoch <= INT64_MAX / s->batch) && s->schedule.bad >= 0 &&
           s->schedule.cooldown >= 0 && s->bad_validations >= 0;
}

static bool read_json(json_t *root, td__manifest *m)
{
    td__train_state *s = &m->state;
    json_int_t step, epoch, batch, rows = 0, seed, samples, best_step, valid_step, steps;
    const char *job, *digest, *optimizer, *format;
    json_t *factor, *schedule_best, *best, *files;
    int version, started;

    memset(m, 0, sizeof *m);
    if (json_unpack(root, "{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o}", "format", &format,
                    "version", &version, "step", &step, "epoch", &epoch, "batch_in_epoch", &batch,
                    "seed", &seed, "samples", &samples, "job_digest", &job, "digest", &digest,
                    "files", &files) != 0 ||
        strcmp(format, FORMAT) != 0 || version != VERSION)
        return false;
    if (json_unpack(root, "{s:{s:o, s:o, s:i, s:i, s:b}}", "schedule", "factor", &factor, "best",
                    &schedule_best, "bad", &s->schedule.bad, "cooldown", &s->schedule.cooldown,
                    "started", &started) != 0 ||
        json_unpack(root, "{s:{s:o, s:I, s:I, s:i}}", "early_stopping", "best", &best, "best_step",
                    &best_step, "valid_step", &valid_step, "bad_validations",
                    &s->bad_validations) != 0 ||
        json_unpack(root, "{s:{s:s, s:I}}", "optimizer", "name", &optimizer, "steps", &steps) != 0)
        return false;
    if (json_unpack(root, "{s?I}", "batch", &rows) != 0)
        return false;
    const char *isa = "", *cpu = "", *more = "", *gpu = "",
               *watch = ""; /* older ones do not have them */
    if (json_unpack(root, "{s:{s?s}}", "early_stopping", "watch", &watch) != 0 ||
        !copy_text(s->watch, sizeof s->watch, watch) ||
        json_unpack(root, "{s?{s:s, s:s, s?s, s?s}}", "processor", "instructions", &isa, "kind",
                    &cpu, "more", &more, "gpu", &gpu) != 0 ||
        !copy_text(s->gpu, sizeof s->gpu, gpu) ||
        !copy_text(m->processor.isa, sizeof m->processor.isa, isa) ||
        !copy_text(m->processor.kind, sizeof m->processor.kind, cpu) ||
        !copy_text(m->processor.more, sizeof m->processor.more, more))
        return false;
    s->step = (uint64_t)step;
    s->epoch = (uint64_t)epoch;
    s->batch_in_epoch = batch;
    s->batch = rows;
    s->seed = (uint64_t)seed;
    s->samples = (uint64_t)samples;
    s->best_step = (uint64_t)best_step;
    s->valid_step = (uint64_t)valid_step;
    s->schedule.started = started != 0;
    m->optimizer_steps = (uint64_t)steps;
    m->arithmetic = (int)json_integer_value(json_object_get(root, "arithmetic"));
    m->arithmetic = m->arithmetic ? m->arithmetic : 1;
    return in_range(m) && get_number(factor, &s->schedule.factor) &&
           get_number(schedule_best, &s->schedule.best) && get_number(best, &s->best) &&
           copy_text(s->job_digest, sizeof s->job_digest, job) &&
           copy_text(s->digest, sizeof s->digest, digest) &&
           copy_text(m->optimizer, sizeof m->optimizer, optimizer) && read_files(files, m);
}

static td_status check_own_hash(json_t *root, const char *path)
{
    char have[TD_SHA256_HEX], want[TD_SHA256_HEX];
    const char *hex = json_string_value(json_object_get(root, "sha256"));
    if (!hex || !copy_text(want, sizeof want, hex))
        return TD_FAIL(TD_EPROTO, "%s: has no sha256 of its own", path);
    json_object_del(root, "sha256");
    TD_TRY(own_hash(root, path, have));
    if (strcmp(have, want) != 0)
        return TD_FAIL(TD_EPROTO, "%s: damaged: its sha256 does not match", path);
    return TD_OK;
}

td_status td__manifest_read(td__manifest *m, const char *path)
{
    td__file_map map;
    json_error_t error;
    json_t *root = NULL;

    TD_TRY(td__file_map_open(&map, path));
    if (map.nbytes <= MAX_STATE_BYTES)
        root = json_loadb((const char *)map.data, map.nbytes, JSON_REJECT_DUPLICATES, &error);
    td__file_map_close(&map);
    if (!root)
        return TD_FAIL(TD_EPROTO, "%s: damaged: not the JSON of a checkpoint", path);
    td_status st = check_own_hash(root, path);
    if (!st && !read_json(root, m))
        st = TD_FAIL(TD_EPROTO, "%s: not the state of a checkpoint of version %d", path, VERSION);
    json_decref(root);
    return st;
}
