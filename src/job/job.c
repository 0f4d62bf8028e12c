/* job.c -- from a job file to checked structs: parse, override, resolve against the table of keys,
 * fill the structs of the layers below. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"
#include "graph/backend_auto.h"
#include "job/job_impl.h"
#include "optim/options.h"
#include "plan/schedule.h"

const td__key td__job_keys[] = {
#define TD_TO(path) TD_OPTION(td__job, path)
#define TD_TO_LIST(path, n) TD_OPTION_LIST(td__job, path, n)
#define TD_KEY(...) TD_KEY_ROW(__VA_ARGS__),
#define TD_TRAIN_KEY(path, member, who, ...) \
    TD_KEY_ROW(path, __VA_ARGS__, .to = {TD_TO(train.member)}),
#define TD_TRAIN_KEY_LIST(path, member, n, who, ...) \
    TD_KEY_ROW(path, __VA_ARGS__, .to = {TD_TO_LIST(train.member, train.n)}),
#include "job/keys.def"
    TD_KEYS_END};

bool td__job_is_sync_key(const char *path)
{
    size_t begin = offsetof(td__job, train.sync), n = sizeof(((td__job *)NULL)->train.sync);
    for (const td__key *k = td__job_keys; k->path; k++)
        if (!strcmp(k->path, path) && k->to.at - begin < n)
            return true;
    /* A rule's options are rows of its own. */
    return !strcmp(path, "train.sync") || !strncmp(path, "train.sync.", strlen("train.sync."));
}

/* lowest, same, and the names of instruction sets. */
const char *td__processor_word(int i)
{
    int isa = i - 2;

    return i == 0               ? "lowest"
           : i == 1             ? "same"
           : isa < TD_ISA_COUNT ? td__isa_name((td__isa)isa)
                                : NULL;
}

const char *td__source_word(int i)
{
    const td__source_def *d = td__source_list(i);

    return d ? d->name : NULL;
}

static td_status out_of_memory(const td__job *j)
{
    return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
}

/* One text of failure with the place and the key before it: for checks that other layers make,
 * whose text may begin with the key. */
static td_status at(td_status st, const td__tree *t, const char *path)
{
    char text[400];
    size_t n = strlen(path);

    snprintf(text, sizeof text, "%s", td_last_error());
    bool named = strncmp(text, path, n) == 0 && strncmp(text + n, ": ", 2) == 0;
    return TD_FAIL(st, "%s: %s: %s", td__tree_where(t).text, path, named ? text + n + 2 : text);
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
        return TD_FAIL(TD_EIO, "%s: the current directory no longer exists", j->file);
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

/* Names in a file start where the file lies, those of --set in the current directory. */
static td_status resolve_from(td__job *j)
{
    const td__tree *t = td__tree_get(j->model, "from");
    const char *slash = t && t->line > 0 ? strrchr(t->source, '/') : NULL;

    if (!t)
        return TD_OK;
    bool joined = slash && t->text[0] != '/';
    j->from = td__arena_printf(j->arena, "%.*s%s", joined ? (int)(slash - t->source) + 1 : 0,
                               joined ? t->source : "", t->text);
    return j->from ? TD_OK : out_of_memory(j);
}

td__job_from_opts td__job_from_options(const td__job *j)
{
    return j->from_opts;
}

static bool is_on_servers(const td__tree *t)
{
    const td__tree *on = t->kind == TD_TREE_MAP ? td__tree_get(t, "on") : NULL;
    bool found = on && on->kind == TD_TREE_SCALAR && !strcmp(on->text, "servers");

    for (const td__tree *c = t->first; c && !found; c = c->next)
        found = is_on_servers(c);
    return found;
}

bool td__job_has_tables(const td__job *j)
{
    return is_on_servers(j->model);
}

const char *td__job_from(const td__job *j)
{
    return j->from;
}

static td_status check_source_options(td__job *j, const td__source_def *def)
{
    static const char *const GENERAL[] = {"source",  "seed",    "split",     "maps",
                                          "cache",   "threads", "prefetch",  "distribute",
                                          "changed", "blocks",  "partition", "weights"};

    for (const td__tree *t = td__tree_get(j->root, "data")->first; t; t = t->next) {
        bool known = td__has_word(def->reads, strcmp(t->key, "header") ? t->key : "no_header");
        for (int i = 0; i < TD_LEN(GENERAL); i++)
            known = known || !strcmp(t->key, GENERAL[i]);
        if (!known)
            return TD_FAIL(TD_EINVAL,
                           "%s: data.%s: the source %s does not take this key; it takes: %s",
                           td__tree_where_key(t).text, t->key, def->name,
                           *def->reads ? def->reads : "nothing");
    }
    return TD_OK;
}

static td_status check_data(td__job *j)
{
    const td__tree *d = td__tree_get(j->root, "data"), *delimiter = td__tree_get(d, "delimiter");

    if (j->data.valid_fraction + j->data.test_fraction >= 1)
        return TD_FAIL(TD_EINVAL,
                       "%s: data.split: valid and test together leave nothing to train "
                       "on, found %g + %g",
                       td__tree_where(td__tree_get(d, "split")).text, j->data.valid_fraction,
                       j->data.test_fraction);
    if (delimiter && strlen(delimiter->text) != 1)
        return TD_FAIL(TD_EINVAL, "%s: data.delimiter: expected one character, found %s",
                       td__tree_where(delimiter).text, td__tree_found(delimiter).text);
    j->data.source_opts.seed = j->data.seed;
    td_loss_opts *loss = &j->loss.opts;
    loss->use_ignore = td__keys_node(j->root, "loss.ignore") != NULL;
    j->data.source_opts.no_class = loss->ignore < 0 ? loss->ignore : 0; /* others are classes */
    TD_TRY(td__features_fill(j->arena, j->features, &j->data.source_opts.features,
                             &j->data.source_opts.n_features));
    return td__stages_fill(j->arena, j->maps, &j->data.maps, &j->data.n_maps);
}

static td_status check_optimizer(td__job *j)
{
    const td__tree *t = td__keys_node(j->root, "train.optimizer");
    const td__optim_def *def;
    td_optim_opts *o = &j->train.optim, full;

    for (const td__tree *c = t->first->next; c; c = c->next)
        if (strcmp(c->key, "scale_lr") != 0 && !td_optimizer_has_option(o->name, c->key))
            return TD_FAIL(TD_EINVAL, "%s: train.optimizer.%s: %s has no such option",
                           td__tree_where_key(c).text, c->key, o->name);
    td_status st = td__optim_resolve(o, &def, &full);
    if (st)
        return at(st, t, "train.optimizer");
    o->lr = full.lr;
    return TD_OK;
}

static td_status check_schedule(td__job *j)
{
    td_schedule_opts *o = &j->train.schedule;
    td_schedule *probe;

    o->lr = j->train.optim.lr;
    /* total_steps 0: the trainer knows how many steps there are; here only the rest is checked. */
    td_schedule_opts check = *o;
    if (!check.total_steps)
        check.total_steps = INT64_C(1) << 61;
    td_status st = td_schedule_create(&check, &probe);
    if (st)
        return at(st, near(j, "train.schedule"), "train.schedule");
    td_schedule_destroy(probe);
    return TD_OK;
}

static td_status check_train(td__job *j)
{
    td__train_opts *o = &j->train;

    if (!o->data_threads)
        o->prefetch = -1;
    if (o->backend && strcmp(o->backend, "auto") == 0)
        o->backend = td__backend_auto();
    if (o->steps_per_epoch && !o->epochs)
        return TD_FAIL(TD_EINVAL, "%s: train.steps_per_epoch: needs train.epochs",
                       td__tree_where(near(j, "train.steps_per_epoch")).text);
    if (o->steps_per_epoch) { /* epochs are then a way to count steps */
        int64_t all = o->epochs * o->steps_per_epoch;
        o->steps = o->steps && o->steps < all ? o->steps : all;
        o->epochs = 0;
        o->valid_every = o->valid_every ? o->valid_every : o->steps_per_epoch;
        o->checkpoint_every = o->checkpoint_every ? o->checkpoint_every : o->steps_per_epoch;
    }
    if (o->scale_lr && !o->optim.lr)
        return TD_FAIL(TD_EINVAL, "%s: train.optimizer.scale_lr: needs train.optimizer.lr",
                       td__tree_where(near(j, "train.optimizer.scale_lr")).text);
    if (!o->epochs && !o->steps)
        return TD_FAIL(TD_EINVAL, "%s: train: missing; expected epochs or steps",
                       td__tree_where(near(j, "train")).text);
    int64_t batch = o->batch_per_rank ? o->batch_per_rank : o->batch;
    if (o->micro_batches > 0 && batch % o->micro_batches)
        return TD_FAIL(TD_EINVAL,
                       "%s: train.micro_batches: expected a divisor of train.batch, %lld, found %d",
                       td__tree_where(near(j, "train.micro_batches")).text, (long long)batch,
                       o->micro_batches);
    if (o->micro_batches > 0 && o->nondeterministic)
        return TD_FAIL(TD_EINVAL,
                       "%s: train.micro_batches: not with reproducible: false, where every compute "
                       "thread has one micro-batch; leave one of the two out",
                       td__tree_where(near(j, "train.micro_batches")).text);
    TD_TRY(check_optimizer(j));
    return check_schedule(j);
}

static td_status check_compress(td__job *j)
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
            return TD_FAIL(TD_EINVAL, "%s: parallel.%s: only with compress: %s, not %s",
                           td__tree_where_key(given).text, options[i].key, options[i].with, name);
    }
    if (!j->train.sync.compressor)
        return TD_OK;
    if (!td__tree_get(p, "compress_warmup"))
        j->train.sync.compress_with.warmup_steps = TD__WARMUP_AUTO;
    td__sync_job job = {.optim = &j->train.optim};
    td_status st = td__sync_check(&j->train.sync, &job, &(td__sync_world){.ranks = 1});
    return st ? at(st, near(j, "parallel.compress"), "parallel.compress") : TD_OK;
}

static td_status check_backup(const td__job *j)
{
    if (j->train.sync.backup && j->train.sync.compressor)
        return TD_FAIL(
            TD_EINVAL,
            "%s: parallel.backup: backup workers send uncompressed gradients, not compressed "
            "ones (parallel.compress: %s)",
            td__tree_where(near(j, "parallel.backup")).text, j->train.sync.compressor);
    if (j->train.sync.backup_replay && !j->train.sync.backup)
        return TD_FAIL(TD_EINVAL, "%s: parallel.backup_replay: only with parallel.backup",
                       td__tree_where(near(j, "parallel.backup_replay")).text);
    const td__sync_ops *rule = j->train.sync.rule ? td__sync_named(j->train.sync.rule) : NULL;
    if (j->train.sync.replay && !j->train.sync.servers && !(rule && rule->order))
        return TD_FAIL(
            TD_EINVAL,
            "%s: parallel.replay: only with parallel.servers, or a sync rule whose ranks "
            "are not in step (async-peer, aeasgd, async-admm): ranks in lockstep have no "
            "order to repeat",
            td__tree_where(near(j, "parallel.replay")).text);
    if (j->train.sync.servers && !j->train.sync.rule) {
        td__sync_job job = {.optim = &j->train.optim, .verify = j->train.verify};
        td_status st = td__sync_check(&j->train.sync, &job, &(td__sync_world){.ranks = 1});
        return st ? at(st, near(j, "parallel.servers"), "parallel.servers") : TD_OK;
    }
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

/* The structs of the layers below, by the table. */
static td_status fill(td__job *j)
{
    for (const td__key *k = td__job_keys; k->path; k++) {
        const td__tree *t = td__keys_node(j->root, k->path);
        if (t)
            TD_TRY(td__key_fill(j->arena, k, t, j));
    }
    return TD_OK;
}

static td_status resolve(td__job *j, td__tree *given)
{
    td__tree *model = NULL, *maps = NULL, *features = NULL;

    TD_TRY(td__strategy_expand(j->arena, given));
    TD_TRY(td__place_devices_expand(j->arena, given));
    TD_TRY(td__keys_resolve(j->arena, td__job_keys, "", given, given, &j->root));
    TD_TRY(default_name(j));
    const td__tree *define = td__tree_get(j->root, "define");
    if (define && define->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: define: expected a map of named blocks, found %s",
                       td__tree_where(define).text, td__tree_found(define).text);
    TD_TRY(td__model_resolve(j->arena, td__tree_get(j->root, "model"), define, &model));
    td__tree_put(j->root, "model", model);
    td__tree *data = td__tree_get(j->root, "data"), *list = td__tree_get(data, "maps");
    if (list) {
        TD_TRY(td__stages_resolve(j->arena, list, &maps));
        td__tree_put(data, "maps", maps);
    }
    list = td__tree_get(data, "features");
    if (list) {
        TD_TRY(td__features_resolve(j->arena, list, &features));
        td__tree_put(data, "features", features);
    }
    TD_TRY(td__sync_key_resolve(j->arena, td__tree_get(j->root, "train")));
    const td__source_def *source = td__source_find(td__keys_text(data, "source"));
    TD_TRY(check_source_options(j, source));
    if (td__has_word(source->reads, "dir"))
        TD_TRY(resolve_dir(j));
    TD_TRY(fill(j));
    TD_TRY(resolve_from(j));
    TD_TRY(td__job_read_warm(j));
    TD_TRY(check_data(j));
    TD_TRY(check_train(j));
    j->train.sync.tables = td__job_has_tables(j);
    TD_TRY(td__sync_key_fill(j));
    TD_TRY(check_compress(j));
    return check_backup(j);
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
    td__plugins_close(j);
    td__arena_destroy(j->model_arena);
    td__arena_destroy(j->arena);
    td__free(j);
}

const char *td__job_name(const td__job *j)
{
    return j->name;
}

const char *td__job_key_meant(const char *word)
{
    const char *path;

    for (int at = 0; (path = td__synonym(word, &at));)
        if (td__keys_find(td__job_keys, path))
            return path;
    for (const td__key *k = td__job_keys; k->path; k++) {
        const char *dot = strrchr(k->path, '.');
        if (k->type != TD_KEY_TREE && !strcmp(dot ? dot + 1 : k->path, word))
            return k->path;
    }
    return NULL;
}

const char *td__job_renamed(const td__job *j, int i)
{
    const td__renamed *r = j->renamed;

    while (r && i-- > 0)
        r = r->next;
    return r ? r->text : NULL;
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

const td__job_hooks *td__job_hook_commands(const td__job *j)
{
    return &j->hooks;
}

const td__job_log *td__job_log_opts(const td__job *j)
{
    return &j->log;
}
