/* command.c -- see command.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/command.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/key.h"
#include "base/text.h"
#include "job/keys.h"
#include "service/algorithm.h"

enum { PATH_BYTES = 4300, MOST_ARGS = 32 };

typedef struct args {
    td__arena *a;
    const char **at;
    int n, room;
    bool failed;
} args;

static void add(args *x, const char *text)
{
    const char *copy = text ? td__arena_strdup(x->a, text) : NULL;

    x->failed = x->failed || !copy || x->n >= x->room - 1;
    if (!x->failed)
        x->at[x->n++] = copy;
}

static td_status out_of_memory(const td__job_record *r)
{
    return TD_FAIL(TD_ENOMEM, "job %d: out of memory", r->id);
}

static td_status write_file(const char *path, const char *text, size_t nbytes)
{
    td__file_out f;

    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, text, nbytes);
    return td__file_out_commit(&f);
}

/* Where the job's data set lies on this host; "": none. */
static void data_dir(const td__service_config *c, const td__job_record *r, const char *dir,
                     char path[PATH_BYTES])
{
    path[0] = '\0';
    (void)c;
    if (r->data_bucket && *r->data_bucket) /* DATA/jobs/ID: buckets are beside jobs */
        snprintf(path, PATH_BYTES, "%.3000s/../../buckets/%.256s/%.900s", dir, r->data_bucket,
                 r->data_path ? r->data_path : "");
}

/* Where the job file itself sends checkpoints; NULL: nowhere. */
static const char *own_upload(const td__job_spec *s, td__arena *a)
{
    td__tree *t, *value;
    char *key;

    if (td__tree_parse(a, s->job_file, strlen(s->job_file), "job", true, &t))
        return NULL;
    for (int i = 0; i < s->n_sets; i++)
        if (s->sets[i][0] != '@' && !td__tree_parse_set(a, s->sets[i], &key, &value) &&
            t->kind == TD_TREE_MAP && td__tree_set(a, t, key, value))
            return NULL;
    return td__keys_text(t, "checkpoint.upload");
}

/* A run whose directory does not stay goes on from what it has sent. */
static void add_run_elsewhere(const td__job_record *r, const td__job_place *p, args *x)
{
    const char *own = own_upload(r->spec, x->a), *url = own ? own : p->checkpoints;

    if (!own && url) {
        add(x, "--set");
        add(x, td__arena_printf(x->a, "checkpoint.upload=\"%s\"", url));
    }
    add(x, td__arena_printf(x->a, "--run-dir=%.4200s/run", p->there));
    if (url && strstr(url, "://") && r->attempt > 1) {
        add(x, td__arena_printf(x->a, "--resume=%s", url));
        add(x, "--or-begin");
    }
}

static void add_run_here(const td__job_place *p, args *x)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%.4200s/run/job.yaml", p->dir);
    add(x, td__arena_printf(x->a,
                            access(path, F_OK) ? "--run-dir=%.4200s/run" : "--resume=%.4200s/run",
                            p->there));
}

/* tandem train of the job file, in the job's own run directory; a second attempt continues it. */
static td_status train(const td__service_config *c, const td__job_record *r, const td__job_place *p,
                       bool local, bool set_data, bool shares, args *x)
{
    const td__job_spec *s = r->spec;
    int ranks = s->members * td__job_processes(s);
    char path[PATH_BYTES], text[PATH_BYTES + 32];

    if (p->attended) {
        add(x, p->self);
        add(x, "attend");
        add(x, td__arena_printf(x->a, "--run=%.4200s/run", p->there));
        add(x, "--");
    }
    add(x, p->self);
    add(x, "train");
    add(x, td__arena_printf(x->a, "%.4200s/job.yaml", p->there));
    for (int i = 0; i < s->n_sets; i++) {
        add(x, "--set");
        add(x, s->sets[i]);
    }
    data_dir(c, r, p->dir, path);
    if (set_data && *path) {
        snprintf(text, sizeof text, "data.dir=\"%s\"", path);
        add(x, "--set");
        add(x, text);
    }
    if (shares)
        add_run_here(p, x);
    else
        add_run_elsewhere(r, p, x);
    snprintf(text, sizeof text, "-j%d", s->slots > 0 ? s->slots : 1);
    add(x, text);
    /* Elsewhere each member's processes are ranks already, by their environment. */
    if (local && (ranks > 1 || s->member_restarts)) {
        snprintf(text, sizeof text, s->member_restarts ? "-n%d:%d" : "-n%d", ranks, ranks);
        add(x, text);
    }
    if (local && s->member_restarts && s->step_deadline_s) {
        snprintf(text, sizeof text, "--hang=%llds", (long long)s->step_deadline_s);
        add(x, text);
    }
    return x->failed ? out_of_memory(r) : TD_OK;
}

static td_status train_file(const td__service_config *c, const td__job_record *r,
                            const td__job_place *p, args *x)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%.4200s/job.yaml", p->dir);
    TD_TRY(write_file(path, r->spec->job_file, strlen(r->spec->job_file)));
    return train(c, r, p, p->local, true, p->shares_dir, x);
}

static td_status train_shipped(const td__service_config *c, const td__job_record *r,
                               const td__job_place *p, args *x)
{
    char path[PATH_BYTES], data[PATH_BYTES];
    td__text job = {0};

    data_dir(c, r, p->dir, data);
    if (!*data)
        return TD_FAIL(TD_EINVAL, "%s needs a data set: dataset_id and train_data_version_hash",
                       r->spec->algorithm);
    td_status st = td__algorithm_job(r->spec, data, &job);
    snprintf(path, sizeof path, "%.4200s/job.yaml", p->dir);
    if (!st)
        st = write_file(path, job.data, job.used);
    td__text_fini(&job);
    TD_TRY(st);
    return train(c, r, p, true, false, true, x);
}

/* "orca3/{algorithm}" with the algorithm in it. */
static const char *image_of(td__arena *a, const td__service_config *c, const td__job_spec *s)
{
    const char *hole = strstr(c->image_format, "{algorithm}");

    if (*s->image)
        return td__arena_strdup(a, s->image);
    if (*s->job_file)
        return td__arena_strdup(a, "tandem");
    return hole ? td__arena_printf(a, "%.*s%s%s", (int)(hole - c->image_format), c->image_format,
                                   s->algorithm, hole + strlen("{algorithm}"))
                : td__arena_strdup(a, c->image_format);
}

/* An MPI program is started by its MPI: on this host by one mpiexec for all members. -n is all that
 * the MPIs agree upon; group_env.c has what Open MPI must be told otherwise. */
static void mpiexec(const td__job_spec *s, args *x)
{
    char text[32];

    snprintf(text, sizeof text, "%d", s->members * td__job_processes(s));
    add(x, "mpiexec");
    add(x, "-n");
    add(x, text);
}

/* What runs a command of Horovod or MPI where no launcher of theirs does. An image or a node that
 * has no tandem runs it all the same, as before: its programs may find each other otherwise. */
static void meet(const td__job_spec *s, const td__job_place *p, args *x)
{
    const char *what = p->attended ? "" : "--no-results ";

    if (p->local) {
        add(x, p->self);
        add(x, "attend");
        add(x, "--no-results");
        add(x, "--framework");
        add(x, s->framework);
        add(x, "--");
        return;
    }
    add(x, "sh");
    add(x, "-c");
    add(x, td__arena_printf(x->a,
                            "command -v '%s' >/dev/null && exec '%s' attend %s--framework %s -- "
                            "\"$@\"; echo \"there is no %s here: nothing serves ranks of %s\" >&2; "
                            "exec \"$@\"",
                            p->self, p->self, what, s->framework, p->self, s->framework));
    add(x, "sh");
}

static td_status choose(const td__service_config *c, const td__job_record *r,
                        const td__job_place *p, td__job_command *out, args *x)
{
    const td__job_spec *s = r->spec;
    bool local = p->local;

    if (!local && !(out->image = image_of(out->arena, c, s)))
        return out_of_memory(r);
    if (*s->job_file) {
        out->tandem = true;
        out->own_ranks = local;
        return train_file(c, r, p, x);
    }
    out->own_ranks = local && s->n_command && !strcmp(s->framework, "mpi");
    if (out->own_ranks)
        mpiexec(s, x);
    else if (s->n_command && s->members * td__job_processes(s) > 1 &&
             (!strcmp(s->framework, "horovod") || !strcmp(s->framework, "mpi")))
        meet(s, p, x);
    for (int i = 0; i < s->n_command; i++)
        add(x, s->command[i]);
    if (s->n_command || !local)
        return x->failed ? out_of_memory(r) : TD_OK;
    if (!td__algorithm_find(s->algorithm))
        return TD_FAIL(TD_EINVAL,
                       "the tracker process has no algorithm '%.64s' (it has: %s); give a command, "
                       "or a tracker that runs images",
                       s->algorithm, td__algorithm_names());
    out->tandem = out->own_ranks = true;
    return train_shipped(c, r, p, x);
}

td_status td__job_command_make(const td__service_config *c, const td__job_record *r,
                               const td__job_place *p, td__job_command *out)
{
    args x = {.room = r->spec->n_command + 2 * r->spec->n_sets + MOST_ARGS};

    *out = (td__job_command){.image = ""};
    TD_TRY(td__arena_create(&out->arena));
    x.a = out->arena;
    x.at = td__arena_alloc(x.a, (size_t)x.room * sizeof *x.at);
    if (!x.at)
        return out_of_memory(r);
    out->argv = x.at;
    return choose(c, r, p, out, &x);
}

void td__job_command_fini(td__job_command *c)
{
    td__arena_destroy(c->arena);
}
