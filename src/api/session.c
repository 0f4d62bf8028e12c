/* session.c -- from a path to a trainer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/session.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/key.h"
#include "base/log.h"
#include "coll/comm_setup.h"
#include "data/pipeline.h"
#include "step/micro_batch_tree.h"

enum { PATIENCE_MS = 10000 }; /* while checkpoints are removed faster than they are read */

td_status td__session_take(td__session *s, td__job *job)
{
    s->job = job;
    TD_TRY(td__job_digest(s->job, s->digest));
    s->opts = *td__job_train(s->job);
    s->opts.name = td__job_name(s->job);
    s->opts.job_digest = s->digest;
    s->opts.same_processors = !strcmp(td__job_parallel_opts(s->job)->processors, "same");
    s->opts.comm = s->comm;
    if (s->threads)
        s->opts.threads = s->threads;
    return TD_OK;
}

/* Does the job file lie in a run's directory? */
static bool is_copy(const char *path)
{
    const char *slash = strrchr(path, '/');
    char beside[TD__PATH];
    struct stat info;

    int n = snprintf(beside, sizeof beside, "%.*s%smetrics.jsonl", slash ? (int)(slash - path) : 0,
                     path, slash ? "/" : "");
    return n < 0 || n >= (int)sizeof beside || stat(beside, &info) == 0;
}

td_status td__session_job(td__session *s, const char *path, const char *const *sets, int n_sets)
{
    td__job *job;

    TD_TRY(td__job_load(path, sets, n_sets, &job));
    td_status st = td__job_load_plugins(job, !s->of_run && !is_copy(path));
    if (st) {
        td__job_destroy(job);
        return st;
    }
    return td__session_take(s, job);
}

/* Of several processes one warns: rank 0, or the first that an elastic launch starts. */
static bool warns(void)
{
    td__world w;
    return !td__world_from_env(&w) && (w.elastic ? w.proc == 1 : w.rank == 0);
}

void td__session_warn_renamed(const td__job *j)
{
    const char *text;

    for (int i = 0; warns() && (text = td__job_renamed(j, i)); i++)
        TD_LOG(WARN, JOB, "%s", text);
}

void td__session_warn_model(const td__session *s, int ranks)
{
    int place = td__job_last_place(s->job);
    if (td__job_hint(s->job) && warns())
        TD_LOG(WARN, JOB, "%s", td__job_hint(s->job));
    if (place > 0 && ranks > 1 && s->opts.sync.mesh.size[TD_AXIS_PIPELINE] < 2 && warns())
        TD_LOG(WARN, JOB,
               "place: layers are put on stages 0 to %d, and parallel.pipeline is not set: every "
               "rank has all of them; use --parallel pipeline=%d",
               place, place + 1);
}

td_status td__session_agree(const td__session *s)
{
    enum { WORD = 32 };
    int ranks = td_comm_size(s->comm);
    char own[WORD] = "", *all = td__calloc((size_t)ranks, WORD);

    if (!all)
        return TD_FAIL(TD_ENOMEM, "no memory for the options of %d ranks", ranks);
    snprintf(own, sizeof own, "%s", td__job_parallel_opts(s->job)->distribute);
    td_status st = td_all_gather(s->comm, own, all, WORD, TD_U8, NULL);
    for (int r = 0; r < ranks && !st; r++)
        if (strcmp(own, all + (size_t)r * WORD) != 0)
            st = TD_FAIL(TD_EINVAL,
                         "rank %d: data.distribute is %s, but rank %d has %s; start all ranks with "
                         "the same job, options and data",
                         td_comm_rank(s->comm), own, r, all + (size_t)r * WORD);
    td__free(all);
    return st;
}

td_status td__session_join(td__session *s)
{
    const td__job_parallel *p = td__job_parallel_opts(s->job);
    const td_comm_opts opts = {
        .transport = p->transport, .algo = p->algo, .timeout_ms = (uint32_t)(p->timeout * 1000)};
    td__world world;

    if (s->comm)
        return TD_OK;
    TD_TRY(td__world_from_env(&world));
    td_status st = td__members_from_env(&opts, &s->agent);
    s->opts.agent = s->agent;
    if (world.elastic) {
        TD_TRY(st);
        s->members = s->opts.members = s->agent;
        return TD_OK;
    }
    if (st) /* fixed ranks do without: only `tandem status` asks for what it would tell */
        TD_LOG(INFO, COLL, "this rank does not report to its agent: %s", td_last_error());
    if (world.size > 1)
        TD_TRY(td_comm_world(&opts, &s->comm));
    s->opts.comm = s->comm;
    return TD_OK;
}

int td__session_rank(const td__session *s)
{
    if (s->members)
        return s->trainer ? td__trainer_rank(s->trainer) : 0;
    return s->comm ? td_comm_rank(s->comm) : 0;
}

td_status td__session_fit_text(td__session *s, const char *text, size_t nbytes, const char *where)
{
    td__fit_destroy(s->fit);
    s->fit = NULL;
    return nbytes ? td__fit_parse(text, nbytes, where, &s->fit) : TD_OK;
}

/* That of the run or checkpoint at `path`, if it says how its data were read. */
static td_status fit_of(td__session *s, const char *path)
{
    td__text text = {0};
    td_status st = td__checkpoint_preprocessing(path, &text);

    if (!st)
        st = td__session_fit_text(s, text.data, text.used, path);
    td__text_fini(&text);
    return st;
}

td_status td__session_changed(td__session *s, bool *changed, char *what, size_t nbytes)
{
    *changed = false;
    return s->fit ? td__data_changed(s->data, s->fit, changed, what, nbytes) : TD_OK;
}

/* data.c opens a part of data.source: memory. */
static td_status open_given(void *user, td__part part, td__dataset **out)
{
    td__session *s = user;

    if (s->given[part])
        return td__pipeline_view(s->given[part], out);
    return part == TD_PART_TRAIN
               ? td__source_open(&td__source_memory, NULL, td__part_name(part), NULL, NULL, out)
               : TD_FAIL(TD_ENOTSUP, "the program gives no %s part", td__part_name(part));
}

static td_status open_data(td__session *s)
{
    td__data_opts opts = *td__job_data(s->job);
    bool memory = strcmp(opts.source, td__source_memory.name) == 0;

    if (!memory && (s->given[0] || s->given[1] || s->given[2]))
        return TD_FAIL(TD_EINVAL,
                       "td_job_opts has samples, but the job reads its own (data.source: %s); set "
                       "data.source to memory",
                       opts.source);
    if (memory && opts.cache)
        return TD_FAIL(TD_EINVAL, "data.cache: not with data.source: memory, whose samples may "
                                  "change from run to run; leave it out");
    if (memory && s->input)
        return TD_FAIL(TD_EINVAL,
                       "data.source: memory: it cannot read %s; give the samples as test of "
                       "td_job_opts",
                       s->input);
    if (memory) {
        opts.open_part = open_given;
        opts.open_user = s;
    }

    if (s->sample_only && !s->fit)
        return TD_FAIL(TD_EINVAL,
                       "the checkpoint has no preprocessing.json: an older program wrote it");
    opts.fit = s->fit;
    if (s->sample_only)
        return td__data_sample(&opts, &s->data);
    opts.input = s->input;
    opts.input_labelled = s->input_labelled;
    const td__distribute_opts spread = {.method = td__job_parallel_opts(s->job)->distribute,
                                        .comm = s->comm,
                                        .progress = s->spreading,
                                        .user = s->spreading_user};
    return td__distribute_open(&opts, &spread, &s->distribution, &s->data);
}

td_status td__session_data(td__session *s)
{
    const td__field *fields;

    TD_TRY(open_data(s));
    int n = td__data_fields(s->data, &fields);
    return td__job_model(s->job, fields, n, &s->model);
}

td_status td__session_check_elastic(const td__session *s)
{
    const td__train_opts *o = &s->opts;

    if (o->batch_per_rank || o->scale_lr)
        return TD_FAIL(TD_EINVAL, "train.%s: not with elastic ranks, whose number changes",
                       o->batch_per_rank ? "batch_per_rank" : "optimizer.scale_lr");
    return TD_OK;
}

/* What the job leaves to the number of ranks that compute each for themselves. */
static td_status scale_by_ranks(td__session *s)
{
    td__train_opts *o = &s->opts;
    bool several = s->comm && !o->untrained;
    int ranks = td__sync_replicas(&o->sync, several ? td_comm_size(s->comm) : 1);

    if ((!o->batch_per_rank && !o->scale_lr) || s->scaled)
        return TD_OK;
    if (s->members)
        return td__session_check_elastic(s);
    if (o->batch_per_rank)
        o->batch = o->batch_per_rank * ranks;
    if (o->batch_per_rank && o->micro_batches > 0)
        o->micro_batches *= ranks;
    if (o->scale_lr) {
        o->optim.lr *= ranks;
        o->schedule.lr = o->schedule.lr > 0 ? o->schedule.lr * ranks : o->schedule.lr;
    }
    s->scaled = true;
    return TD_OK;
}

td_status td__session_graph(const td__session *s, td_graph **out)
{
    td__model_nodes nodes = {0};

    TD_TRY(td_graph_create(out));
    td_status st =
        s->model.build(s->model.user, *out, td__trainer_micro_batch_rows(s->trainer), &nodes);
    if (!st)
        return TD_OK;
    td_graph_destroy(*out);
    *out = NULL;
    return st;
}

td_status td__session_trainer(td__session *s)
{
    TD_TRY(scale_by_ranks(s));
    return td__trainer_create(&s->opts, &s->model, s->data, &s->trainer);
}

static td_status try_cut(const td__session *s, td_graph *g)
{
    td__tensor_cut cut = td__sync_tensor_cut(&s->opts.sync, 0, 1);
    const td__train_opts *o = &s->opts;
    int64_t n = o->micro_batches ? o->micro_batches : td__micro_batches_default(o->batch);
    int64_t rows = cut.sequence && o->batch > n ? (o->batch + n - 1) / n : 1;
    td__model_nodes nodes = {0};
    td_program *p;
    cut.rows_wanted = cut.sequence;
    TD_TRY(s->model.build(s->model.user, g, rows, &nodes));
    TD_TRY(td_graph_status(g));
    TD_TRY(td__program_create_tensor(g, nodes.loss, NULL, false, &cut, &p));
    td_program_destroy(p);
    return TD_OK;
}

td_status td__session_check_tensor(td__session *s)
{
    td_graph *g;
    if (!td__sync_division_of(&s->opts.sync).pieces && !s->opts.sync.sequence)
        return TD_OK;
    if (!s->data && td__session_data(s))
        return TD_OK; /* the ranks say what is wrong with it, or have it */
    TD_TRY(td_graph_create(&g));
    td_status st = try_cut(s, g);
    td_graph_destroy(g);
    return st;
}

void td__session_fini(td__session *s)
{
    td__ps_tables_destroy(s->tables);
    td__trainer_destroy(s->trainer);
    td__distribute_close(s->distribution);
    td__data_close(s->data);
    if (!s->borrowed)
        td_comm_destroy(s->comm);
    if (s->agent)
        s->agent->ops->destroy(s->agent);
    td__faults_destroy(s->faults);
    td__fit_destroy(s->fit);
    td__job_destroy(s->job);
    for (int p = 0; p < TD_PART_COUNT; p++)
        td_dataset_destroy(s->given[p]);
    *s = (td__session){0};
}

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Cuts the last name off a path if it is `name`, or begins with it where it ends in "-". */
static void go_up(char *path, const char *name)
{
    char *slash = strrchr(path, '/');
    size_t len = strlen(name);

    if (slash && strncmp(slash + 1, name, len) == 0 && (name[len - 1] == '-' || !slash[1 + len]))
        *slash = 0;
}

/* What a user names: a run's directory, a checkpoint's, or a job file. */
typedef struct place {
    char job[TD__PATH]; /* the job file */
    char run[TD__PATH]; /* the run; "" for a job file: its newest run is meant */
} place;

static td_status find_place(const char *path, place *out)
{
    struct stat info;
    char real[PATH_MAX];

    *out = (place){0};
    if (strlen(path) >= sizeof out->job)
        return TD_FAIL(TD_EINVAL, "the path %.60s... is too long", path);
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        snprintf(out->job, sizeof out->job, "%s", path);
        return TD_OK;
    }
    TD_TRY(td__run_dir_path(path, "job.yaml", out->job));
    snprintf(out->run, sizeof out->run, "%s", path);
    if (is_file(out->job))
        return TD_OK;
    if (realpath(path, real)) { /* a checkpoint, or the folder of all */
        go_up(real, "step-");
        go_up(real, "checkpoints");
        snprintf(out->run, sizeof out->run, "%s", real);
        TD_TRY(td__run_dir_path(real, "job.yaml", out->job));
        if (strcmp(real, path) != 0 && is_file(out->job))
            return TD_OK;
    }
    return TD_FAIL(TD_EINVAL, "%s is not a run: it has no job.yaml", path);
}

td_status td__session_checkpoint(const char *run, const char *which, td__checkpoint_info *info)
{
    char name[32], *end;

    if (which && strcmp(which, "latest") == 0)
        which = NULL;
    if (which && strncmp(which, "step-", 5) == 0) { /* with or without the zeros */
        unsigned long long step = strtoull(which + 5, &end, 10);
        if (which[5] >= '0' && which[5] <= '9' && !*end) {
            snprintf(name, sizeof name, "step-%08llu", step);
            which = name;
        }
    } else if (which && strcmp(which, "best") != 0) {
        return TD_FAIL(TD_EINVAL, "checkpoint: expected latest, best or step-N, found '%.60s'",
                       which);
    }
    return td__checkpoint_find(run, which, info);
}

/* The run that is meant: the one named, or the job's newest. */
static td_status find_run(td__session *s, const place *at, char run[TD__PATH])
{
    if (*at->run) {
        snprintf(run, TD__PATH, "%s", at->run);
        return TD_OK;
    }
    return td__run_dir_newest(td__job_log_opts(s->job)->runs_dir, td__job_name(s->job), run);
}

/* A run that goes on has removed it meanwhile: a newer one is there. */
static bool is_gone(const td__checkpoint_info *info)
{
    return access(info->path, F_OK) != 0;
}

/* The data that a trained model is used on. All checkpoints of a run have one preprocessing. */
static td_status open_trained_data(td__session *s, const td__checkpoint_info *info, const char *run)
{
    char what[256];
    bool changed = false;

    td_status st = fit_of(s, info->path);
    TD_TRY((st || !s->fit) && is_gone(info) ? fit_of(s, run) : st);
    if (!s->fit && td__has_word(td__source_find(td__job_data(s->job)->source)->reads, "dir"))
        TD_LOG(WARN, DATA,
               "%s has no preprocessing.json (an older program wrote it): categories, words and "
               "means are taken from the training data as they are now",
               info->path);
    TD_TRY(td__session_data(s));
    if (!s->input)
        TD_TRY(td__session_changed(s, &changed, what, sizeof what));
    if (changed)
        TD_LOG(WARN, DATA, "the data have changed since %s was trained: %s", info->path, what);
    return TD_OK;
}

static td_status load_weights(td__session *s, const char *run, const char *which,
                              td__checkpoint_info *info)
{
    bool named = which && strncmp(which, "step-", 5) == 0;
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    td_status st = td__trainer_load_checkpoint(s->trainer, info);

    while (st && !s->comm && !named && is_gone(info) && !td__deadline_passed(until)) {
        TD_TRY(td__session_checkpoint(run, which, info));
        st = td__trainer_load_checkpoint(s->trainer, info);
    }
    return st;
}

/* Rows of tables lie beside the checkpoints, and are those of the same step. */
static td_status read_tables(td__session *s, const td__checkpoint_info *info)
{
    char dir[TD__PATH];
    td__sync_ctx x = {.optim = &s->opts.optim,
                      .rows = td__trainer_micro_batch_rows(s->trainer),
                      .step = {.set = td__trainer_train_set(s->trainer),
                               .params = td__trainer_params(s->trainer),
                               .program = td__trainer_program(s->trainer)}};
    if (!td__job_has_tables(s->job))
        return TD_OK;
    for (int p = TD_PART_COUNT - 1; p >= 0 && !x.data; p--)
        x.data = td__data_part(s->data, (td__part)p);
    snprintf(dir, sizeof dir, "%s", info->path);
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    return td__ps_tables_read(&x, slash ? dir : ".", info->state.step, &s->tables);
}

/* What concerns the training alone is left out. */
static void divide_to_use(const td__session *s, td__train_opts *o)
{
    td__sync_to_use(&o->sync);
    o->verify = 0;
    o->threads = s->threads;
    o->optim = (td_optim_opts){.name = "sgd", .lr = 1};
}

/* Can so many ranks use the model together? */
static td_status check_use(const td__session *s, int ranks)
{
    td__train_opts o = s->opts;
    td__sync_world w = {.ranks = ranks, .starts = true};

    divide_to_use(s, &o);
    if (ranks > 1 && td__job_has_tables(s->job))
        return TD_FAIL(TD_EINVAL, "rows of tables on servers are read by one rank: leave -n out");
    if (ranks > 1 && td__sync_division_of(&o.sync).ranks < 2 && o.sync.zero < 3)
        return TD_FAIL(TD_EINVAL,
                       "%d ranks would have the whole model each: say how they divide it, "
                       "--parallel pipeline=%d or tensor=%d, or leave -n out",
                       ranks, ranks, ranks);
    return td__train_check(&o, &w);
}

static td_status join_to_use(td__session *s)
{
    if (s->joins)
        TD_TRY(td__session_join(s));
    if (s->members)
        return TD_FAIL(TD_EINVAL, "a trained model is used by ranks of a fixed number, not by "
                                  "elastic ones");
    if (s->joins && (s->comm || s->starts))
        TD_TRY(check_use(s, s->comm ? td_comm_size(s->comm) : s->starts));
    if (s->comm || s->starts > 1)
        divide_to_use(s, &s->opts);
    return s->comm ? td__session_agree(s) : TD_OK;
}

/* All use the checkpoint that rank 0 has found: a run that goes on writes others meanwhile. */
static td_status find_checkpoint(td__session *s, const char *from, const char *which,
                                 td__checkpoint_info *info)
{
    if (!s->comm || td_comm_rank(s->comm) == 0)
        TD_TRY(td__session_checkpoint(from, which, info));
    return s->comm ? td_broadcast(s->comm, info, sizeof *info, TD_U8, 0, NULL) : TD_OK;
}

static td_status open_trained(td__session *s, const char *path, const char *const *sets, int n_sets,
                              const char *which, td__checkpoint_info *info)
{
    place at;
    char run[TD__PATH];

    TD_TRY(find_place(path, &at));
    s->of_run = *at.run != 0;
    TD_TRY(td__session_job(s, at.job, sets, n_sets));
    TD_TRY(join_to_use(s));
    TD_TRY(find_run(s, &at, run));
    /* A checkpoint that is named by its own directory is the one that is meant. */
    bool own = *at.run && strcmp(at.run, path) != 0 && !which;
    TD_TRY(find_checkpoint(s, own ? path : run, which, info));
    TD_TRY(open_trained_data(s, info, run));
    s->opts.checkpoint_dir = NULL;
    s->opts.blank = s->opts.untrained = true;
    TD_TRY(td__session_trainer(s));
    if (s->elsewhere || s->starts > 1)
        return TD_OK;
    TD_TRY(load_weights(s, own ? path : run, which, info));
    return read_tables(s, info);
}

td_status td__session_trained(td__session *s, const char *path, const char *const *sets, int n_sets,
                              const char *which, td__checkpoint_info *info)
{
    return td__session_told(s, open_trained(s, path, sets, n_sets, which, info));
}

td_status td__session_told(const td__session *s, td_status st)
{
    char text[512];

    if (!st || !s->comm)
        return st;
    snprintf(text, sizeof text, "%s", td_last_error());
    td_comm_abort(s->comm, text);
    return TD_FAIL(st, "%s", text);
}

td_status td__session_part(const td__session *s, const char *name, td__part *part,
                           td__dataset **out)
{
    for (int p = TD_PART_COUNT - 1; p >= 0; p--) { /* test, then valid */
        td__dataset *d = td__data_part(s->data, (td__part)p);
        if (name ? strcmp(name, td__part_name((td__part)p)) != 0 : p == TD_PART_TRAIN || !d)
            continue;
        if (!d)
            return TD_FAIL(TD_EINVAL, "%s has no %s part: set data.split.%s or data.%s",
                           td__job_name(s->job), name, name, name);
        *part = (td__part)p;
        *out = d;
        return TD_OK;
    }
    if (name)
        return TD_FAIL(TD_EINVAL, "part: expected train, valid or test, found '%.60s'", name);
    return TD_FAIL(TD_EINVAL, "%s has neither a test nor a validation part; take part train",
                   td__job_name(s->job));
}
