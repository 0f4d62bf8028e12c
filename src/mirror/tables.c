/* tables.c -- see tables.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "mirror/tables.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "mirror/mirror_impl.h"

#define FORMAT "tandem tables"

/* ---- Which files ----------------------------------------------------------------------------- */

typedef struct parts {
    size_t stem; /* characters before the step: a table's of one server */
    uint64_t step;
    bool all;
} parts;

/* STEM.STEP.all or .delta */
static bool parse(const char *text, parts *out)
{
    const char *kind = strrchr(text, '.'), *at;
    char *end;
    if (!kind || kind == text || (strcmp(kind, ".all") != 0 && strcmp(kind, ".delta") != 0))
        return false;
    for (at = kind - 1; at > text && *at != '.'; at--)
        continue;
    errno = 0;
    out->step = strtoull(at + 1, &end, 10);
    out->stem = (size_t)(at - text);
    out->all = strcmp(kind, ".all") == 0;
    return at > text && end == kind && end > at + 1 && !errno;
}

/* Is a needed beside b, of the same stem? */
static bool same_stem(const char *a, const parts *x, const char *b, const parts *y)
{
    return x->stem == y->stem && memcmp(a, b, x->stem) == 0;
}

static bool is_needed(const json_t *there, const char *text, uint64_t step)
{
    const json_t *each;
    parts n, other;
    bool of_step = false;
    size_t i;
    if (!parse(text, &n) || n.step > step)
        return false;
    json_array_foreach(there, i, each)
    {
        const char *b = json_string_value(each);
        if (!parse(b, &other) || !same_stem(text, &n, b, &other) || other.step > step)
            continue;
        of_step = of_step || other.step == step;
        if (other.all && other.step > n.step)
            return false;
    }
    return of_step;
}

td_status td__tables_needed(const char *folder, uint64_t step, json_t **out)
{
    json_t *there = json_array(), *each;
    size_t i;
    *out = json_array();
    DIR *d = opendir(folder);
    if (!d && errno != ENOENT) {
        json_decref(there);
        return TD_FAIL(TD_EIO, "%s: cannot be read: %s", folder, strerror(errno));
    }
    for (const struct dirent *e; d && (e = readdir(d));)
        json_array_append_new(there, json_string(e->d_name));
    if (d)
        closedir(d);
    json_array_foreach(there, i, each) if (is_needed(there, json_string_value(each), step))
        json_array_append(*out, each);
    json_decref(there);
    return TD_OK;
}

/* ---- tables.json ----------------------------------------------------------------------------- */

static bool is_entry(const char *key, const json_t *file)
{
    const char *object = json_string_value(json_object_get(file, "object"));
    const char *sha256 = json_string_value(json_object_get(file, "sha256"));
    parts n;
    return td__is_plain_name(key) && parse(key, &n) && object && td__is_plain_name(object) &&
           sha256 && strlen(sha256) == TD_SHA256_HEX - 1;
}

td_status td__tables_parse(const char *text, size_t nbytes, const char *where, json_t **files)
{
    json_t *root = json_loadb(text ? text : "", nbytes, 0, NULL), *file;
    const char *format = json_string_value(json_object_get(root, "format")), *key;
    *files = json_incref(json_object_get(root, "files"));
    bool good = format && strcmp(format, FORMAT) == 0 && json_is_object(*files) &&
                json_integer_value(json_object_get(root, "version")) == 1;
    json_object_foreach(*files, key, file) good = good && is_entry(key, file);
    json_decref(root);
    return good ? TD_OK
                : TD_FAIL(TD_EPROTO, "%s/" TD__TABLES_FILE ": damaged, or of a newer program",
                          where);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* A file that was written again under its name is another object. */
static td_status send_file(td__mirror *m, const char *folder, const char *file, json_t *files)
{
    char path[TD__PATH], object[320], place[TD__PATH], url[TD__URL_BYTES], hex[TD_SHA256_HEX];
    struct stat info;
    TD_TRY(td__run_dir_path(folder, file, path));
    if (stat(path, &info))
        return TD_FAIL(TD_EIO, "%s: cannot be read: %s", path, strerror(errno));
    snprintf(object, sizeof object, "%.255s-%llx", file,
             (unsigned long long)info.st_mtim.tv_sec * 1000000000u +
                 (unsigned long long)info.st_mtim.tv_nsec);
    const char *sent = json_string_value(json_object_get(m->tables, object));
    if (!sent) {
        snprintf(place, sizeof place, TD__TABLES_FOLDER "/%s", object);
        TD_TRY(td__url_join(m->url, place, url));
        TD_TRY(td__remote_put_file(m->remote, url, path, hex, td__deadline_in_ms(TD__SEND_MS)));
        json_object_set_new(m->tables, object, json_string(hex));
        sent = json_string_value(json_object_get(m->tables, object));
    }
    json_object_set_new(files, file, json_pack("{s:s, s:s}", "object", object, "sha256", sent));
    return TD_OK;
}

static int append(const char *bytes, size_t n, void *text)
{
    td__text_append(text, bytes, n);
    return 0;
}

td_status td__mirror_put_tables(td__mirror *m, const char *folder, const char *name, uint64_t step)
{
    char place[TD__PATH], url[TD__URL_BYTES];
    json_t *needed, *each, *files = json_object();
    size_t i;
    td_status st = td__tables_needed(folder, step, &needed);
    if (!m->tables)
        m->tables = json_object();
    json_array_foreach(needed, i, each) if (!st) st =
        send_file(m, folder, json_string_value(each), files);
    if (!st && json_object_size(files)) {
        json_t *root = json_pack("{s:s, s:i, s:O}", "format", FORMAT, "version", 1, "files", files);
        td__text text = {0};
        snprintf(place, sizeof place, "%s/" TD__TABLES_FILE, name);
        st = root && json_dump_callback(root, append, &text, JSON_INDENT(1)) == 0
                 ? td__text_status(&text)
                 : TD_FAIL(TD_ENOMEM, "no memory for " TD__TABLES_FILE);
        if (!st)
            st = td__url_join(m->url, place, url);
        if (!st)
            st = td__remote_put(m->remote, url, text.data, text.used,
                                td__deadline_in_ms(TD__SEND_MS));
        td__text_fini(&text);
        json_decref(root);
        m->has_tables = true;
    }
    json_decref(needed);
    json_decref(files);
    return st;
}

/* The objects of a checkpoint that is there; NULL: it has no tables. */
static td_status get_files(td__mirror *m, uint64_t step, json_t **out)
{
    char place[TD__PATH], url[TD__URL_BYTES], folder[TD__STEP_NAME];
    td__text text = {0};
    *out = NULL;
    td__step_name(step, folder);
    snprintf(place, sizeof place, "%s/" TD__TABLES_FILE, folder);
    TD_TRY(td__url_join(m->url, place, url));
    td_status st =
        td__remote_get(m->remote, url, TD__TABLES_JSON_MAX, &text, td__deadline_in_ms(TD__SEND_MS));
    if (!st)
        st = td__tables_parse(text.data, text.used, folder, out);
    else if (st == TD_EINVAL || td__remote_absent(m->remote))
        st = TD_OK;
    td__text_fini(&text);
    return st;
}

static void take_away(json_t *objects, const json_t *files)
{
    const char *key;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)files, key, file)
        json_object_del(objects, json_string_value(json_object_get(file, "object")));
}

static td_status remove_object(td__mirror *m, const char *object)
{
    char place[TD__PATH], url[TD__URL_BYTES];
    snprintf(place, sizeof place, "%s", object);
    TD_TRY(td__url_join(m->url, place, url));
    return td__remote_delete(m->remote, url, td__deadline_in_ms(TD__SEND_MS));
}

td_status td__mirror_remove_tables(td__mirror *m, uint64_t step)
{
    char place[TD__PATH], folder[TD__STEP_NAME];
    json_t *files = NULL, *objects = json_object(), *file, *other;
    const char *key;
    td_status st = m->has_tables || m->resuming ? get_files(m, step, &files) : TD_OK;
    json_object_foreach(files, key, file) json_object_set_new(
        objects, json_string_value(json_object_get(file, "object")), json_true());
    for (int i = 0; !st && files && i < m->n_there; i++) {
        if (m->there[i] == step)
            continue;
        st = get_files(m, m->there[i], &other);
        take_away(objects, other);
        json_decref(other);
    }
    if (!st && files) {
        td__step_name(step, folder);
        snprintf(place, sizeof place, "%s/" TD__TABLES_FILE, folder);
        st = remove_object(m, place);
    }
    json_object_foreach(objects, key, file)
    {
        snprintf(place, sizeof place, TD__TABLES_FOLDER "/%s", key);
        if (!st)
            st = remove_object(m, place);
        json_object_del(m->tables, key);
    }
    json_decref(objects);
    json_decref(files);
    return st;
}
