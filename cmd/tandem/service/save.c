/* save.c -- `tandem save` and `tandem load`: the state of a program of any kind, kept where its
 * next start finds it (service/track/bundle.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/config.h"
#include "base/fail.h"
#include "command.h"
#include "service/track/bundle.h"

enum { PATIENCE_MS = 3600 * 1000 };

/* Where to: --url or the variable, with the rank where every rank keeps its own. */
static td_status place(const td__args *a, char url[4096])
{
    const char *given = td__args_value(a, "url"), *rank = td__env_get(TD_ENV_TORCH_RANK);

    if (!given)
        given = td__env_get(TD_ENV_CHECKPOINT_URL);
    if (!given)
        return TD_FAIL(TD_EINVAL, "where? give --url, or set %s",
                       td__env_name(TD_ENV_CHECKPOINT_URL));
    int n = td__args_has(a, "each") ? snprintf(url, 4096, "%s/rank-%s", given, rank ? rank : "0")
                                    : snprintf(url, 4096, "%s", given);
    return n < 4096 ? TD_OK : TD_FAIL(TD_EINVAL, "--url: it is too long");
}

static int save(const td__args *a)
{
    const char *dir = td__args_at(a, 0), *rank = td__env_get(TD_ENV_TORCH_RANK);
    char url[4096];
    td__remote *r = NULL;
    struct stat info;
    int64_t number;

    if (stat(dir, &info) || !S_ISDIR(info.st_mode))
        return td__usage_error(a, "%s: expected a directory", dir);
    td_status st = place(a, url);
    if (!st && !td__args_has(a, "each") && rank && strcmp(rank, "0") != 0)
        return TD_EXIT_OK; /* rank 0 does it for all */
    if (!st)
        st = td__remote_create(&(td__remote_opts){0}, &r);
    if (!st)
        st = td__bundle_save(r, dir, url, &number, td__deadline_in_ms(PATIENCE_MS));
    td__remote_destroy(r);
    if (st)
        return td__failure(a, st);
    printf("saved %s (save %" PRId64 ")\n", dir, number);
    return TD_EXIT_OK;
}

static int load(const td__args *a)
{
    const char *dir = td__args_at(a, 0);
    char url[4096];
    td__remote *r = NULL;
    int64_t number = 0;
    td_status st = place(a, url);

    if (!st)
        st = td__remote_create(&(td__remote_opts){0}, &r);
    if (!st)
        st = td__bundle_load(r, url, dir, &number, td__deadline_in_ms(PATIENCE_MS));
    td__remote_destroy(r);
    if (st)
        return td__failure(a, st);
    if (number)
        printf("loaded %s (save %" PRId64 ")\n", dir, number);
    else
        printf("nothing was saved yet\n");
    return TD_EXIT_OK;
}

static const td__flag FLAGS[] = {
    {"url", 0, "URL", "s3://BUCKET/PREFIX or a folder; else TANDEM_CHECKPOINT_URL", NULL},
    {"each", 0, NULL, "every rank has a state of its own; else rank 0 alone saves", NULL},
    {0}};

static const char *const SAVE_EXAMPLES[] = {
    "tandem save state", "keep the files of state/, from a job's program",
    "tandem save state --each --url s3://bucket/run7", "those of this rank, in a bucket", NULL};

const td__command td__command_save = {
    .name = "save",
    .args = "DIR",
    .summary = "keep the state of a program where its next start finds it",
    .text = "For programs that `tandem serve` runs, which tells them the place by "
            "TANDEM_CHECKPOINT_URL and the keys by AWS_*. All files of the directory are kept "
            "whole or not at all; the last two saves stay. Of a group rank 0 alone does it, "
            "unless --each is given.",
    .examples = SAVE_EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = save,
};

static const char *const LOAD_EXAMPLES[] = {"tandem load state",
                                            "the files of the last `tandem save`, if any", NULL};

const td__command td__command_load = {
    .name = "load",
    .args = "DIR",
    .summary = "fetch the state that `tandem save` has kept",
    .text = "Every file is checked by its sha256. Where nothing was saved yet, nothing is done, "
            "and the status is 0.",
    .examples = LOAD_EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = load,
};
