/* job.c -- from a job file to checked structs: parse, override, resolve against the table of keys,
 * fill the structs of the layers below. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"
#include "job/job_impl.h"
#include "optim/options.h"
#include "train/compress.h"

const td__key td__job_keys[] = {
#define TD_KEY(...) TD_KEY_ROW(__VA_ARGS__),
#include "job/keys.def"
#undef TD_KEY
    TD_KEYS_END};

const char *td__source_word(int i)
{
    const td__source_def *d = td__source_list(i);

    return d ? d->name : NULL;
}

static td_status out_of_memory(const td__job *j)
{
    return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
}

/* One text of failure with the place before it: for checks that other layers make. */
static td_status at(td_status st, const td__tree *t, const char *path)
{
    char text[400];

    snprintf(text, sizeof text, "%s", td_last_error());
    return TD_FAIL(st, "%s: %s: %s", td__tree_where(t).text, path, text);
}

/* The section or key that is there, else the whole job: where to point. */
static const td__tree *near(const td__job *j, const char *path)
{
    const td__tree *t = td__keys_node(j->root, path);

    return t ? t : j->root;
}

/* data.dir as an absolute path: relative ones in a file start at the file's folder, those of
 * overrides where the program runs. */
static td_status resolve_dir(td__job *j)
{
    td__tree *data = td__tree_get(j->root, "data"), *dir = td__tree_get(data, "dir");
    bool in_file = !dir || dir->line > 0;
    const char *file = dir && in_file ? dir->source : j->file, *slash = strrchr(file, '/');
    char cwd[4096];

    if (dir && dir->text[0] == '/')
        return TD_OK;
    if (!getcwd(cwd, sizeof cwd))
        return TD_FAIL(TD_EIO, "%s: the current folder is not there any more", j->file);
    const char *folder = in_file && slash ? file : "";
    int n = in_file && slash ? (int)(slash - file) : 0;
    const char *start = folder[0] == '/' ? "" : cwd;
    char *path = td__arena_printf(j->arena, "%s%s%.*s%s%s", start, n && folder[0] != '/' ? "/" : "",
                                  n, folder, dir ? "/" : "", dir ? dir->text : "");
    td__tree *t = path ? td__tree_scalar(j->arena, *path ? path : "/", dir ? dir : data) : NULL;
    if (!t)
        return out_of_memory(j);
    if (dir) {
        td__tree_replace(data, dir, t);
    } else { /* keeps the order of the table: right after the source */
        t->key = "dir";
        t->next = data->first->next;
        data->first->next = t;
        data->last = data->last == data->first ? t : data->last;
        data->count++;
    }
    return TD_OK;
}

static td_status check_source_options(td__job *j, const td__source_def *def)
{
    static const char *const GENERAL[] = {"source", "seed",    "split",    "maps",
                                          "cache",  "threads", "prefetch", "distribute"};

    for (const td__tree *t = td__tree_get(j->root, "data")->first; t; t = t->next) {
        bool known = td__has_word(def->reads, strcmp(t->key, "header") ? t->key : "no_header");
        for (int i = 0; i < TD_LEN(GENERAL); i++)
            known = known || !strcmp(t->key, GENERAL[i]);
        if (!known)
            return TD_FAIL(TD_EINVAL, "%s: data.%s: the source %s does not read it; it reads: %s",
                           td__tree_where_key(t).text, t->key, def->name,
                           *def->reads ? def->reads : "nothing");
    }
    return TD_OK;
}

static td_status fill_data(td__job *j)
{
    const td__tree *d = td__tree_get(j->root, "data"), *delimiter = td__tree_get(d, "delimiter");
    const td__source_def *def = td__source_find(td__keys_text(d, "source"));
    const td__key *keys = td__job_keys;
    td__source_opts *o = &j->data.source_opts;
    double valid = td__keys_real(d, "split.valid"), test = td__keys_real(d, "split.test");

    TD_TRY(check_source_options(j, def));
    if (td__has_word(def->reads, "dir"))
        TD_TRY(resolve_dir(j));
    if (valid + test >= 1)
        return TD_FAIL(TD_EINVAL,
                       "%s: data.split: valid and test together leave nothing to train "
                       "on, found %g + %g",
                       td__tree_where(td__tree_get(d, "split")).text, valid, test);
    if (delimiter && strlen(delimiter->text) != 1)
        return TD_FAIL(TD_EINVAL, "%s: data.delimiter: expected one character, found %s",
                       td__tree_where(delimiter).text, td__tree_found(delimiter).text);
    *o = (td__source_opts){
        .dir = td__keys_text(d, "dir"),
        .train = td__keys_text(d, "train"),
        .valid = td__keys_text(d, "valid"),
        .test = td__keys_text(d, "test"),
        .label = td__keys_text(d, "label"),
        .target = td__keys_text(d, "target"),
        .delimiter = delimiter ? delimiter->text[0] : 0,
        .no_header = td__tree_get(d, "header") && !td__keys_bool(d, "header"),
        .unit = td__keys_text(d, "unit"),
        .context = td__keys_int(keys, j->root, "data.context"),
        .stride = td__keys_int(keys, j->root, "data.stride"),
        .vocab = td__keys_int(keys, j->root, "data.vocab"),
        .count = td__keys_int(keys, j->root, "data.count"),
        .classes = td__keys_int(keys, j->root, "data.classes"),
        .noise = td__keys_real(d, "noise"),
        .seed = (uint64_t)td__keys_int(keys, j->root, "data.seed"),
    };
    o->n_columns = td__keys_texts(j->arena, d, "columns", &o->columns);
    if (o->n_columns < 0)
        return out_of_memory(j);
    j->data.source = def->name;
    j->data.valid_fraction = valid;
    j->data.test_fraction = test;
    j->data.cache = td__keys_text(d, "cache");
    j->data.seed = o->seed;
    return td__stages_fill(j->arena, td__tree_get(d, "maps"), &j->data.maps, &j->data.n_maps);
}

/* A given zero is a zero, not "the default". */
static double given_real(const td__tree *map, const char *key)
{
    double v = td__keys_real(map, key);

    return td__tree_get(map, key) && v == 0 ? TD_ZERO : v;
}

static td_status fill_optimizer(td__job *j)
{
    const td__tree *t = td__keys_node(j->root, "train.optimizer");
    const char *name = td__keys_text(t, "name");
    const td__optim_def *def;
    td_optim_opts *o = &j->train.optim, full;

    for (const td__tree *c = t->first->next; c; c = c->next)
        if (!td_optimizer_has_option(name, c->key))
            return TD_FAIL(TD_EINVAL, "%s: train.optimizer.%s: %s has no such option",
                           td__tree_where_key(c).text, c->key, name);
    *o = (td_optim_opts){.name = name,
#define X(field, lo, hi, hi_allowed) .field = given_real(t, #field),
                         TD_OPTIM_OPTION_MAP(X)
#undef X
                             .nesterov = td__keys_bool(t, "nesterov"),
                         .centered = td__keys_bool(t, "centered"),
                         .no_decay_vectors = td__keys_bool(t, "no_decay_vectors")};
    o->clip_norm = td__keys_real(j->root, "train.clip.norm");
    o->clip_value = td__keys_real(j->root, "train.clip.value");
    td_status st = td__optim_resolve(o, &def, &full);
    if (st)
        return at(st, t, "train.optimizer");
    o->lr = full.lr;
    return TD_OK;
}

static td_status fill_schedule(td__job *j)
{
    const td__tree *t = td__keys_node(j->root, "train.schedule");
    const td__key *keys = td__job_keys;
    td_schedule_opts *o = &j->train.schedule;
    td_schedule *probe;

    *o = (td_schedule_opts){
        .name = td__keys_text(t, "name"),
        .lr = j->train.optim.lr,
        .warmup_steps = td__keys_int(keys, j->root, "train.schedule.warmup_steps"),
        .warmup_start = given_real(t, "warmup_start"),
        .total_steps = td__keys_int(keys, j->root, "train.schedule.total_steps"),
        .step_size = td__keys_int(keys, j->root, "train.schedule.step_size"),
        .gamma = td__keys_real(t, "gamma"),
        .power = td__keys_real(t, "power"),
        .lr_min = td__keys_real(t, "lr_min"),
        .patience = (int)td__keys_int(keys, j->root, "train.schedule.patience"),
        .cooldown = (int)td__keys_int(keys, j->root, "train.schedule.cooldown"),
        .threshold = td__keys_real(t, "threshold"),
    };
    if (td__tree_get(t, "patience") && o->patience == 0)
        o->patience = -1;
    o->n_milestones = td__keys_ints(j->arena, t, "milestones", &o->milestones);
    if (o->n_milestones < 0)
        return out_of_memory(j);
    /* total_steps 0: the trainer knows how many steps there are; here only the rest is checked. */
    td_schedule_opts check = *o;
    if (!check.total_steps)
        check.total_steps = INT64_C(1) << 61;
    td_status st = td_schedule_create(&check, &probe);
    if (st)
        return at(st, t, "train.schedule");
    td_schedule_destroy(probe);
    return TD_OK;
}

static td_status fill_train(td__job *j)
{
    const td__tree *t = td__tree_get(j->root, "train");
    const td__key *keys = td__job_keys;
    td__train_opts *o = &j->train;

    *o = (td__train_opts){
        .batch = td__keys_int(keys, j->root, "train.batch"),
        .epochs = td__keys_int(keys, j->root, "train.epochs"),
        .steps = td__keys_int(keys, j->root, "train.steps"),
        .micro_batches = (int)td__keys_int(keys, j->root, "train.shards"),
        .nondeterministic = !td__keys_bool(t, "reproducible"),
        .accumulate = (int)td__keys_int(keys, j->root, "train.accumulate"),
        .verify = td__keys_real(j->root, "train.verify"),
        .threads = (int)td__keys_int(keys, j->root, "parallel.threads"),
        .zero = (int)td__keys_int(keys, j->root, "parallel.zero"),
        .in_flight = (int)td__keys_int(keys, j->root, "parallel.beside"),
        .bucket_nbytes = (size_t)(td__keys_real(j->root, "parallel.bucket_mb") * (1 << 20)),
        .precision = strcmp(td__keys_text(t, "precision"), "bf16") ? TD_F32 : TD_BF16,
        .backend = td__keys_text(t, "backend"),
        .seed = (uint64_t)td__keys_int(keys, j->root, "train.seed"),
        .valid_every = td__keys_int(keys, j->root, "train.eval.every"),
        .eval_batch = td__keys_int(keys, j->root, "train.eval.batch"),
        .watch = td__keys_text(t, "early_stop.watch"),
        .patience = (int)td__keys_int(keys, j->root, "train.early_stop.patience"),
        .min_delta = td__keys_real(t, "early_stop.min_delta"),
        .prefetch = (int)td__keys_int(keys, j->root, "data.prefetch"),
        .data_threads = (int)td__keys_int(keys, j->root, "data.threads"),
        .checkpoint_every = td__keys_int(keys, j->root, "checkpoint.every"),
        .checkpoint_keep = (int)td__keys_int(keys, j->root, "checkpoint.keep"),
    };
    if (!o->data_threads)
        o->prefetch = -1;
    if (!o->epochs && !o->steps)
        return TD_FAIL(TD_EINVAL, "%s: train: missing; expected epochs or steps",
                       td__tree_where(t).text);
    if (o->micro_batches > 0 && o->batch % o->micro_batches)
        return TD_FAIL(
            TD_EINVAL, "%s: train.shards: expected a divisor of train.batch, %lld, found %d",
            td__tree_where(near(j, "train.shards")).text, (long long)o->batch, o->micro_batches);
    if (o->micro_batches > 0 && o->nondeterministic)
        return TD_FAIL(TD_EINVAL,
                       "%s: train.shards: goes with reproducible: true; otherwise every compute "
                       "thread has one micro-batch",
                       td__tree_where(near(j, "train.shards")).text);
    TD_TRY(fill_optimizer(j));
    return fill_schedule(j);
}

static td_status fill_compress(td__job *j)
{
    const td__tree *p = td__tree_get(j->root, "parallel");
    const char *name = td__keys_text(p, "compress");
    const struct {
        const char *key, *with;
    } options[] = {{"compress_ratio", "topk"},
                   {"compress_rank", "powersgd"},
                   {"compress_warmup", "topk powersgd"}};

    for (int i = 0; i < TD_LEN(options); i++) {
        const td__tree *given = td__tree_get(p, options[i].key);
        if (given && !td__has_word(options[i].with, name))
            return TD_FAIL(TD_EINVAL, "%s: parallel.%s: goes with compress: %s, not %s",
                           td__tree_where_key(given).text, options[i].key, options[i].with, name);
    }
    if (strcmp(name, "none") == 0)
        return TD_OK;
    bool warms = td__tree_get(p, "compress_warmup");
    j->train.compressor = name;
    j->train.compress_with = (td__compressor_opts){
        .ratio = td__keys_real(p, "compress_ratio"),
        .rank = (int)td__keys_int(td__job_keys, j->root, "parallel.compress_rank"),
        .warmup_steps = warms ? td__keys_int(td__job_keys, j->root, "parallel.compress_warmup")
                              : TD__WARMUP_AUTO};
    td_status st = td__compress_check(&j->train);
    return st ? at(st, near(j, "parallel.compress"), "parallel.compress") : TD_OK;
}

static td_status fill_backup(td__job *j)
{
    const td__tree *p = td__tree_get(j->root, "parallel");

    j->train.backup = (int)td__keys_int(td__job_keys, j->root, "parallel.backup");
    j->train.backup_replay = td__keys_text(p, "backup_replay");
    if (j->train.backup && j->train.compressor)
        return TD_FAIL(
            TD_EINVAL,
            "%s: parallel.backup: backup workers hand in plain gradients, not compressed "
            "ones (parallel.compress: %s)",
            td__tree_where(near(j, "parallel.backup")).text, j->train.compressor);
    if (j->train.backup_replay && !j->train.backup)
        return TD_FAIL(TD_EINVAL, "%s: parallel.backup_replay: goes with parallel.backup",
                       td__tree_where(near(j, "parallel.backup_replay")).text);
    return TD_OK;
}

/* A name is part of folders' names. */
static td_status check_name(td__job *j)
{
    const td__tree *t = td__tree_get(j->root, "name");
    size_t good =
        strspn(t->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    if (!t->text[0] || t->text[good] || t->text[0] == '.' || good > 100)
        return TD_FAIL(TD_EINVAL,
                       "%s: name: expected at most 100 letters, digits, '-', '_' and '.', found %s",
                       td__tree_where(t).text, td__tree_found(t).text);
    return TD_OK;
}

/* Without a name, the file's, as far as it can be one. */
static td_status default_name(td__job *j)
{
    const char *slash = strrchr(j->file, '/'), *base = slash ? slash + 1 : j->file;
    const char *dot = strrchr(base, '.');
    char name[101];
    size_t n = dot && dot > base ? (size_t)(dot - base) : strlen(base);

    if (td__tree_get(j->root, "name"))
        return check_name(j);
    snprintf(name, sizeof name, "%.*s", (int)(n < 100 ? n : 100), base);
    for (char *c = name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              *c == '_' || *c == '-' || (*c == '.' && c > name)))
            *c = '-';
    td__tree *t = td__tree_scalar(j->arena, name[0] ? name : "job", j->root);
    if (!t)
        return out_of_memory(j);
    t->key = "name";
    t->next = j->root->first;
    j->root->first = t;
    j->root->count++;
    return TD_OK;
}

static td_status resolve(td__job *j, td__tree *given)
{
    td__tree *model = NULL, *maps = NULL;

    TD_TRY(td__keys_resolve(j->arena, td__job_keys, "", given, given, &j->root));
    TD_TRY(default_name(j));
    TD_TRY(td__model_resolve(j->arena, td__tree_get(j->root, "model"), &model));
    td__tree_put(j->root, "model", model);
    td__tree *data = td__tree_get(j->root, "data"), *list = td__tree_get(data, "maps");
    if (list) {
        TD_TRY(td__stages_resolve(j->arena, list, &maps));
        td__tree_put(data, "maps", maps);
    }
    TD_TRY(fill_data(j));
    TD_TRY(fill_train(j));
    TD_TRY(fill_compress(j));
    TD_TRY(fill_backup(j));
    const td__tree *log = td__tree_get(j->root, "log");
    j->log = (td__job_log){.runs_dir = td__keys_text(log, "dir"),
                           .every = td__keys_int(td__job_keys, j->root, "log.every"),
                           .tensorboard = td__keys_bool(log, "tensorboard"),
                           .report = td__keys_bool(log, "report")};
    const td__tree *parallel = td__tree_get(j->root, "parallel");
    const char *transport = td__keys_text(parallel, "transport");
    j->train.even = strcmp(td__keys_text(parallel, "balance"), "off") == 0;
    j->parallel =
        (td__job_parallel){.distribute = td__keys_text(td__tree_get(j->root, "data"), "distribute"),
                           .transport = strcmp(transport, "auto") ? transport : NULL,
                           .algo = td__keys_text(parallel, "algo")};
    return TD_OK;
}

td_status td__job_parse(const char *text, size_t nbytes, const char *name, const char *const *sets,
                        int n_sets, td__job **out)
{
    td_status st = TD_OK;
    td__tree *given;

    *out = NULL;
    td__job *j = td__calloc(1, sizeof *j);
    if (!j)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", name);
    TD_TRY_OR(st, fail, td__arena_create(&j->arena));
    j->file = td__arena_strdup(j->arena, name);
    if (!j->file) {
        st = TD_FAIL(TD_ENOMEM, "%s: out of memory", name);
        goto fail;
    }
    TD_TRY_OR(st, fail, td__tree_parse(j->arena, text, nbytes, name, true, &given));
    if (given->kind != TD_TREE_MAP) {
        st = TD_FAIL(TD_EINVAL, "%s: expected a map with model, data and train, found %s", name,
                     td__tree_found(given).text);
        goto fail;
    }
    TD_TRY_OR(st, fail, td__job_expand(j, given));
    for (int i = 0; i < n_sets; i++)
        TD_TRY_OR(st, fail, td__job_override(j, given, sets[i]));
    TD_TRY_OR(st, fail, resolve(j, given));
    *out = j;
    return TD_OK;
fail:
    td__job_destroy(j);
    return st;
}

td_status td__job_load(const char *path, const char *const *sets, int n_sets, td__job **out)
{
    td__file_map m;

    *out = NULL;
    TD_TRY(td__job_open(path, &m));
    td_status st = td__job_parse((const char *)m.data, m.nbytes, path, sets, n_sets, out);
    td__file_map_close(&m);
    return st;
}

void td__job_destroy(td__job *j)
{
    if (!j)
        return;
    td__arena_destroy(j->model_arena);
    td__arena_destroy(j->arena);
    td__free(j);
}

const char *td__job_name(const td__job *j)
{
    return td__keys_text(j->root, "name");
}

td_status td__job_write(const td__job *j, FILE *to)
{
    return td__tree_write(j->root, to);
}

const td__data_opts *td__job_data(const td__job *j)
{
    return &j->data;
}

const td__train_opts *td__job_train(const td__job *j)
{
    return &j->train;
}

const td__job_parallel *td__job_parallel_opts(const td__job *j)
{
    return &j->parallel;
}

const td__job_log *td__job_log_opts(const td__job *j)
{
    return &j->log;
}
