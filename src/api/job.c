/* job.c -- td_job: a job's text with overrides, checked whenever one is added. Trainers make jobs
 * of their own from it, so that it may be changed and destroyed as the caller likes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/job_text.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"

td_status td__job_text_parse(const td_job *j, td__job **out)
{
    return td__job_parse(j->text, strlen(j->text), j->name, (const char *const *)j->sets, j->n_sets,
                         out);
}

/* Takes text. */
static td_status make(char *text, const char *name, td_job **out)
{
    td_job *j = td__calloc(1, sizeof *j);

    *out = NULL;
    if (!j || !text) {
        td__free(j);
        td__free(text);
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a job", name);
    }
    j->text = text;
    j->name = td__strdup(name);
    td_status st =
        j->name ? td__job_text_parse(j, &j->job) : TD_FAIL(TD_ENOMEM, "no memory for a job");
    if (st) {
        td_job_destroy(j);
        return st;
    }
    *out = j;
    return TD_OK;
}

td_status td_job_load(const char *path, td_job **out)
{
    td__file_map map;

    *out = NULL;
    TD_TRY(td__job_open(path, &map));
    char *text = td__calloc(map.nbytes + 1, 1);
    if (text)
        memcpy(text, map.data, map.nbytes);
    td__file_map_close(&map);
    return make(text, path, out);
}

td_status td_job_parse(const char *text, const char *name, td_job **out)
{
    return make(td__strdup(text), name, out);
}

void td_job_destroy(td_job *j)
{
    if (!j)
        return;
    td__job_destroy(j->job);
    for (int i = 0; i < j->n_sets; i++)
        td__free(j->sets[i]);
    td__free(j->sets);
    td__free(j->name);
    td__free(j->text);
    td__free(j);
}

td_status td_job_set(td_job *j, const char *key_value)
{
    char **sets = td__realloc(j->sets, ((size_t)j->n_sets + 1) * sizeof *sets);
    char *copy = td__strdup(key_value);
    td__job *job;

    j->sets = sets ? sets : j->sets;
    if (!sets || !copy) {
        td__free(copy);
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a job", j->name);
    }
    j->sets[j->n_sets++] = copy;
    td_status st = td__job_text_parse(j, &job);
    if (st) {
        td__free(j->sets[--j->n_sets]);
        return st;
    }
    td__job_destroy(j->job);
    j->job = job;
    return TD_OK;
}

const char *td_job_name(const td_job *j)
{
    return td__job_name(j->job);
}

td_status td_job_write(const td_job *j, FILE *to)
{
    return td__job_write(j->job, to);
}

td_status td_job_digest(const td_job *j, char hex[65])
{
    return td__job_digest(j->job, hex);
}
