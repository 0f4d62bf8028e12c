/* check_spec.c -- is this a job that the caller may submit? What the book's service requires, what
 * contradicts itself, and what would run code or touch files that the caller has no right to. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/key.h"
#include "base/text.h"
#include "base/utf8.h"
#include "job/job.h"
#include "job/keys.h"
#include "service/algorithm.h"
#include "service/group_env.h"
#include "service/service_impl.h"
#include "service/spec.h"

static td__answer check_book(const td__service *s, td__job_spec *p)
{
    if (!*p->output_model_name && !s->config->compat_strict)
        p->output_model_name = p->name;
    const struct {
        const char *value, *name;
    } needed[] = {{p->output_model_name, "outputModelName"},
                  {p->dataset_id, "datasetId"},
                  {p->train_data_version_hash, "trainDataVersionHash"},
                  {p->algorithm, "algorithm"}};
    for (int i = 0; i < TD_LEN(needed); i++)
        if (!*needed[i].value)
            return td__answer_fail(TD_ANSWER_INVALID, "\"%s\" is required.", needed[i].name);
    return TD_ANSWER_OK;
}

static td__answer take_parallel_instances(td__job_spec *p)
{
    const char *text = td__pairs_get(&p->parameters, "PARALLEL_INSTANCES");
    int64_t n;

    if (!text)
        return TD_ANSWER_OK;
    if (!td__parse_int(text, &n) || n < 1 || n > 65536)
        return td__answer_fail(TD_ANSWER_INVALID,
                               "parameters: PARALLEL_INSTANCES: expected a whole number from 1 to "
                               "65536, found %.32s",
                               text);
    p->members = (int)n;
    return TD_ANSWER_OK;
}

static td__answer check_env(const td__service *s, const td__job_spec *p)
{
    td__answer a = TD_ANSWER_OK;

    for (int i = 0; i < p->parameters.n && !a; i++)
        if (strcmp(p->parameters.at[i].key, "PARALLEL_INSTANCES") != 0)
            a = td__env_check(s->config, p->parameters.at[i].key, true);
    for (int i = 0; i < p->env.n && !a; i++)
        a = td__env_check(s->config, p->env.at[i].key, false);
    return a;
}

/* Names of jobs are parts of names of containers and files. */
static td__answer check_name(const td__job_spec *p)
{
    size_t good =
        strspn(p->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._- ");

    return !p->name[good] && good <= 100
               ? TD_ANSWER_OK
               : td__answer_fail(TD_ANSWER_INVALID,
                                 "name: expected at most 100 letters, digits, blanks, '-', '_' and "
                                 "'.'");
}

static bool name_leaves(const char *name, size_t n)
{
    if (n && (name[0] == '/' || name[0] == '~'))
        return true;
    for (size_t at = 0, part; at < n; at += part + 1) {
        const char *slash = memchr(name + at, '/', n - at);
        part = slash ? (size_t)(slash - (name + at)) : n - at;
        if (part == 2 && !memcmp(name + at, "..", 2))
            return true;
    }
    return false;
}

/* A name, or a list of them: "x=images.npy,y=labels.npy". */
static bool leaves_directory(const char *path)
{
    size_t n;

    if (name_leaves(path, strlen(path)) || strstr(path, "://")) /* servers, with our credentials */
        return true;
    for (; *path; path += n + !!path[n]) {
        n = strcspn(path, "=,");
        if (name_leaves(path, n))
            return true;
    }
    return false;
}

/* Keys of a job file that name files. */
static const char *const PATH_KEYS[] = {
    "data.dir",   "data.train", "data.valid",  "data.test",      "data.cache", "log.dir",
    "train.init", "data.words", "data.tokens", "checkpoint.dir", "model.from", "checkpoint.upload"};

static td__answer check_paths(const td__job_spec *p)
{
    td__arena *a;
    td__tree *t, *value;
    char *key;
    td_status st = td__arena_create(&a);
    td__answer answer = TD_ANSWER_OK;

    if (st)
        return td__answer_of(st);
    st = td__tree_parse(a, p->job_file, strlen(p->job_file), "job", true, &t);
    for (int i = 0; !st && i < p->n_sets; i++) {
        if (p->sets[i][0] == '@') {
            answer = td__answer_fail(TD_ANSWER_DENIED, "sets: '@FILE' is not for submitted jobs");
            goto done;
        }
        st = td__tree_parse_set(a, p->sets[i], &key, &value);
        if (!st && t->kind == TD_TREE_MAP)
            st = td__tree_set(a, t, key, value);
    }
    if (st) {
        answer = td__answer_of(st);
        goto done;
    }
    for (int i = 0; i < TD_LEN(PATH_KEYS) && !answer; i++) {
        const char *path = td__keys_text(t, PATH_KEYS[i]);
        if (path && leaves_directory(path))
            answer = td__answer_fail(TD_ANSWER_DENIED,
                                     "job: %s: %.100s is outside the job's directory; an admin, or "
                                     "security.allow_code, may allow it",
                                     PATH_KEYS[i], path);
    }
done:
    td__arena_destroy(a);
    return answer;
}

/* The file must be one that tandem train takes; what depends on its data is found when it runs. */
static td__answer check_job_file(const td__service *s, const td__caller *who, td__job_spec *p)
{
    td__job *j;
    td__answer a = who->admin || s->config->allow_code ? TD_ANSWER_OK : check_paths(p);

    if (a)
        return a;
    td_status st = td__job_parse(p->job_file, strlen(p->job_file), "job", p->sets, p->n_sets, &j);
    if (st)
        return td__answer_of(st);
    const td__job_hooks *h = td__job_hook_commands(j);
    bool hooks = h->epoch || h->best || h->end || h->fail, plugins = td__job_has_plugins(j);
    if (!*p->name)
        p->name = td__spec_text(p, td__job_name(j));
    td__job_destroy(j);
    if (hooks)
        return td__answer_fail(TD_ANSWER_DENIED,
                               "job: on: commands run only from a job file on the command line");
    if (plugins)
        return td__answer_fail(TD_ANSWER_DENIED, "job: plugin: plug-ins are loaded only from a job "
                                                 "file on the command line");
    if (!strcmp(p->framework, "none"))
        p->framework = "tandem";
    return TD_ANSWER_OK;
}

static td__answer check_code(const td__service *s, const td__caller *who, const td__job_spec *p)
{
    const char *what = p->n_command ? "command" : *p->image ? "image" : NULL;

    if (!what || who->admin || s->config->allow_code)
        return TD_ANSWER_OK;
    return td__answer_fail(TD_ANSWER_DENIED,
                           "%s: jobs with code of their own are for admins; security.allow_code "
                           "allows them to everybody",
                           what);
}

/* Everything that was given, keys of maps too: it is stored as JSON and sent in protobuf texts. */
static td__answer check_text(const td__job_spec *p)
{
    td__text json = {0};

    td__spec_json(p, &json);
    bool failed = json.failed, good = !failed && td__utf8_valid(json.data, json.used);
    td__text_fini(&json);
    if (failed)
        return td__answer_fail(TD_ANSWER_INTERNAL, "out of memory");
    return good ? TD_ANSWER_OK
                : td__answer_fail(TD_ANSWER_INVALID, "the job has a text that is not UTF-8");
}

td__answer td__service_check_spec(td__service *s, const td__caller *who, td__job_spec *p,
                                  bool strict)
{
    td__answer a = check_text(p);

    if (!a && strict)
        a = check_book(s, p);
    if (!a)
        a = check_name(p);
    if (!a)
        a = take_parallel_instances(p);
    if (!a)
        a = check_env(s, p);
    if (!a)
        a = check_code(s, who, p);
    if (!a && *p->job_file)
        a = check_job_file(s, who, p);
    if (a)
        return a;
    const td__tracker_ops *tracker =
        td__tracker_find(*p->tracker ? p->tracker : s->config->tracker);
    if (*p->tracker && !tracker)
        return td__answer_fail(TD_ANSWER_INVALID, "tracker: there is no tracker '%.40s'",
                               p->tracker);
    if (p->step_deadline_s && tracker && !tracker->sees_steps)
        return td__answer_fail(TD_ANSWER_INVALID,
                               "restarts.step_deadline_s: the tracker %s does not see steps of "
                               "members; only process does",
                               tracker->name);
    if (p->member_restarts && *p->job_file && tracker && strcmp(tracker->name, "process") != 0)
        return td__answer_fail(TD_ANSWER_INVALID,
                               "restarts.members: a rank of a job file is restarted alone on the "
                               "tracker process only; on %s give retries.max, with which the whole "
                               "group goes on from its last checkpoint",
                               tracker->name);
    if (p->member_restarts && (!strcmp(p->framework, "horovod") || !strcmp(p->framework, "mpi")))
        return td__answer_fail(TD_ANSWER_INVALID,
                               "restarts.members: ranks of %s do not take a new one among them; "
                               "give retries.max, with which the whole group starts again",
                               p->framework);
    if (*p->job_file && *p->dataset_id && tracker && !td__service_sees_data(s, tracker))
        return td__answer_fail(TD_ANSWER_INVALID,
                               "dataset_id: members of the tracker %s do not see the data set's "
                               "files, which a job file needs; run it on the tracker process or "
                               "docker, or give a command that reads TRAINING_DATA_URL",
                               tracker->name);
    if (!*p->job_file && !p->n_command && !*p->image && !*p->algorithm)
        return td__answer_fail(TD_ANSWER_INVALID,
                               "nothing to run: give job, command, image or algorithm");
    if (td__algorithm_find(p->algorithm) && !p->n_command && !*p->image && !*p->job_file)
        return td__answer_of(td__algorithm_check(p));
    return TD_ANSWER_OK;
}
