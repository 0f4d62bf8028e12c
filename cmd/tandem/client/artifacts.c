/* artifacts.c -- `tandem artifacts`: files that jobs made, and files for data sets.
 *
 *     tandem artifacts 12                     list
 *     tandem artifacts get 12 model.bin       fetch one, whole or not at all, and check its sha256
 *     tandem artifacts put FILE 12/NAME       add one to a job
 *     tandem artifacts put FILE BUCKET/KEY    put a file into a bucket */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/human.h"
#include "base/sha256.h"
#include "client/client.h"

static int list(td__client *c, int job, json_t **out)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%d/artifacts", job);
    return td__client_call(c, "GET", path, NULL, out);
}

static int print_list(td__client *c, int job)
{
    json_t *answer = NULL, *f;
    size_t i;
    char size[TD__HUMAN];
    int rc = list(c, job, &answer);
    if (!rc && td__args_has(c->args, "json")) {
        json_dumpf(json_object_get(answer, "artifacts"), stdout, JSON_INDENT(2));
        putchar('\n');
    } else if (!rc) {
        json_array_foreach(json_object_get(answer, "artifacts"), i, f)
        {
            td__text name = {0};
            td__text_printable(&name, td__client_text(f, "name"));
            printf("%12s  %.16s  %s\n", td__human_bytes((double)td__json_whole(f, "nbytes"), size),
                   td__client_text(f, "sha256"), name.data ? name.data : "");
            td__text_fini(&name);
        }
    }
    json_decref(answer);
    return rc;
}

typedef struct fetching {
    td__file_out file;
    td__sha256 hash;
} fetching;

static bool write_piece(void *arg, const void *data, size_t nbytes)
{
    fetching *f = arg;
    td__file_out_write(&f->file, data, nbytes);
    td__sha256_update(&f->hash, data, nbytes);
    return !f->file.error;
}

/* The sha256 that the service has for the file; "" if it has no such file. */
static const char *known_sha256(const json_t *answer, const char *name)
{
    const json_t *f;
    size_t i;
    json_array_foreach(json_object_get(answer, "artifacts"), i, f)
    {
        if (strcmp(td__client_text(f, "name"), name) == 0)
            return td__client_text(f, "sha256");
    }
    return "";
}

static int get(td__client *c, int job, const char *name)
{
    const td__args *a = c->args;
    const char *slash = strrchr(name, '/'), *to = td__args_value(a, "output");
    json_t *answer = NULL;
    fetching f = {0};
    td__text path = {0};
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX];
    int rc = list(c, job, &answer);
    const char *want = known_sha256(answer, name);
    if (!to)
        to = slash ? slash + 1 : name;
    if (!rc && !*want)
        rc = td__usage_error(a, "job %d has no artifact '%s'; tandem artifacts %d lists them", job,
                             name, job);
    td_status st = rc ? TD_OK : td__sha256_init(&f.hash);
    if (!rc && !st)
        st = td__file_out_open(&f.file, to);
    if (st)
        rc = td__failure(a, st);
    if (!rc) {
        td__text_printf(&path, "/v1/jobs/%d/artifacts/", job);
        td__url_append(&path, name, true);
        rc = td__client_stream(c, path.data, write_piece, &f, NULL);
        td__sha256_final(&f.hash, digest);
        td__sha256_hex(digest, hex);
        if (!rc && !f.file.error && strcmp(hex, want) != 0) {
            td__usage_error(a, "%s arrived damaged: its sha256 is %.16s, not %.16s; try again",
                            name, hex, want);
            rc = TD_EXIT_FAILED;
        }
        if (rc) {
            td__file_out_abandon(&f.file);
        } else {
            st = td__file_out_commit(&f.file);
            rc = st ? td__failure(a, st) : TD_EXIT_OK;
        }
    }
    td__sha256_fini(&f.hash);
    td__text_fini(&path);
    json_decref(answer);
    return rc;
}

/* "12/name" is an artifact of a job, "bucket/key" an object: a bucket's name is no number. */
static int put(td__client *c, const char *file, const char *to)
{
    const td__args *a = c->args;
    const char *slash = strchr(to, '/');
    td__text path = {0};
    struct stat st;
    json_t *answer = NULL;
    char size[TD__HUMAN];
    if (!slash || slash == to || !slash[1])
        return td__usage_error(a, "expected JOB/NAME or BUCKET/KEY, found '%s'", to);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        int rc = td__usage_error(a, "cannot read %s: %s", file,
                                 fd < 0 ? strerror(errno) : "not a regular file");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    if (strspn(to, "0123456789") == (size_t)(slash - to)) {
        td__text_printf(&path, "/v1/jobs/%.*s/artifacts/", (int)(slash - to), to);
        td__url_append(&path, slash + 1, true);
    } else {
        td__text_add(&path, "/v1/buckets/");
        td__url_append(&path, to, true);
    }
    int rc = td__client_upload(c, path.data, fd, (uint64_t)st.st_size, &answer);
    if (!rc)
        printf("%s  %s  sha256:%s\n", to,
               td__human_bytes((double)td__json_whole(answer, "nbytes"), size),
               td__client_text(answer, "sha256"));
    close(fd);
    td__text_fini(&path);
    json_decref(answer);
    return rc;
}

static int run(const td__args *a)
{
    td__client c = {0};
    int n = td__args_count(a), rc, job;
    const char *verb = td__args_at(a, 0);
    bool getting = strcmp(verb, "get") == 0, putting = strcmp(verb, "put") == 0;
    if ((getting || putting) && n != 3)
        return td__usage_error(a, getting ? "expected get JOB NAME" : "expected put FILE JOB/NAME");
    if (!getting && !putting && n != 1)
        return td__usage_error(a, "expected get, put or one job, found '%s'", verb);
    job = putting ? 1 : td__client_job(a, getting ? td__args_at(a, 1) : verb);
    if (!job)
        return TD_EXIT_USAGE;
    rc = td__client_open(a, &c);
    if (!rc)
        rc = getting   ? get(&c, job, td__args_at(a, 2))
             : putting ? put(&c, td__args_at(a, 1), td__args_at(a, 2))
                       : print_list(&c, job);
    td__client_close(&c);
    return rc;
}

static const td__flag FLAGS[] = {
    {"output", 'o', "FILE", "where get writes to; the artifact's own name", "FILE"},
    {"json", 0, NULL, "print JSON", NULL},
    TD_CLIENT_FLAGS,
    {0},
};
static const char *const EXAMPLES[] = {
    "tandem artifacts 12",
    "files that job 12 made",
    "tandem artifacts get 12 model.safetensors -o best.safetensors",
    "fetch one of them",
    "tandem artifacts put data.csv mini-automl-dm/upload/data.csv",
    "put a file into a bucket, for a data set",
    NULL};

const td__command td__command_artifacts = {
    .name = "artifacts",
    .args = "JOB | get JOB NAME | put FILE JOB/NAME",
    .summary = "list, fetch and add files of a training service",
    .text =
        "A file that is fetched is checked against the sha256 that the service keeps for it, and "
        "is whole or absent. put takes BUCKET/KEY too, for files of data sets.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 3,
    .run = run,
};
