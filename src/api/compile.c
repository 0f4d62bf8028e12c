/* compile.c -- a model built in C becomes a trainer: its output with loss and metrics, its data,
 * its optimizer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/job_text.h"
#include "api/trainer_impl.h"
#include "base/check.h"
#include "base/fail.h"
#include "step/heads.h"

enum { BATCH = 32 };

const char *td_loss_list(int i)
{
    return td__loss_list(i) ? td__loss_list(i)->name : NULL;
}

const char *td_metric_list(int i)
{
    return td__metric_list(i) ? td__metric_list(i)->name : NULL;
}

/* ---- The model ------------------------------------------------------------------------------- */

/* One call of a build function. */
typedef struct building {
    const td__compiled *model;
    td__model_nodes *out;
    const char *missing; /* a field that was asked for and is not there; "": too many; NULL: none */
} building;

static const td__field *find_field(const td__compiled *c, const char *name)
{
    for (int i = 0; i < c->n_fields; i++)
        if (!strcmp(c->fields[i].name, name))
            return &c->fields[i];
    return NULL;
}

td_node *td_build_input(td_build *b, const char *field)
{
    building *in = b->inside;
    td__model_nodes *o = in->out;
    const td__field *f = find_field(in->model, field);

    for (int i = 0; f && i < o->n_inputs; i++)
        if (!strcmp(o->inputs[i], field))
            return td_graph_find(b->g, field);
    if (!f || f->shape.ndim + 1 > TD_MAX_DIMS || o->n_inputs == TD__MAX_MODEL_INPUTS) {
        in->missing = in->missing ? in->missing : field;
        return NULL;
    }
    td_shape s = {.ndim = f->shape.ndim + 1, .dim = {b->rows}};
    for (int i = 1; i < s.ndim; i++)
        s.dim[i] = f->shape.dim[i - 1];
    o->inputs[o->n_inputs++] = f->name;
    return td_input(b->g, f->name, f->dtype, s);
}

static td_status add_metric(td__model_nodes *o, const char *name, td_node *node, bool higher,
                            bool whole)
{
    for (int i = 0; i < o->n_metrics; i++)
        if (!strcmp(o->metrics[i].name, name))
            return TD_FAIL(TD_EINVAL, "compile: there are two metrics called %s", name);
    if (o->n_metrics == TD__MAX_METRICS)
        return TD_FAIL(TD_EINVAL, "compile: more than %d metrics", TD__MAX_METRICS);
    o->metrics[o->n_metrics++] =
        (td__metric_node){.name = name, .node = node, .higher_is_better = higher, .whole = whole};
    return TD_OK;
}

/* Does the loss fit the target and the output? */
static td_status check_loss(const td__loss_def *d, const td__field *target, const td_node *y)
{
    td_shape s = td_node_shape(y);
    int64_t last = s.ndim > 0 ? s.dim[s.ndim - 1] : 0;

    if (d->kind != TD_HEAD_CLASSES)
        return TD_OK;
    if (target->classes == 0 && td_dtype_is_float(target->dtype))
        return TD_FAIL(TD_EINVAL, "compile: %s wants classes, but field %s has numbers", d->name,
                       target->name);
    if (target->classes > last)
        return TD_FAIL(TD_EINVAL, "compile: the output has %lld values, but %s has %lld classes",
                       (long long)last, target->name, (long long)target->classes);
    return TD_OK;
}

static td_status named_metrics(const td__compiled *c, const td__head *h, const td__loss_def *loss,
                               td__model_nodes *out)
{
    const td__metric_def *one = c->n_metrics == 0 ? td__metric_default(loss) : NULL;

    if (one)
        return add_metric(out, one->name, one->build(h), one->higher_is_better, one->whole);
    for (int i = 0; i < c->n_metrics; i++) {
        const td__metric_def *m = td__metric_find(c->metrics[i]);
        if (!m)
            return TD_FAIL(TD_EINVAL, "compile: there is no metric '%s' (td_metric_list names all)",
                           c->metrics[i]);
        if (m->kind != loss->kind)
            return TD_FAIL(TD_EINVAL, "compile: the metric %s does not go with the loss %s",
                           m->name, loss->name);
        TD_TRY(add_metric(out, m->name, m->build(h), m->higher_is_better, m->whole));
    }
    return TD_OK;
}

/* Loss and metrics by name. */
static td_status judge(const td__compiled *c, td_build *b, td__model_nodes *out)
{
    const td__field *field = find_field(c, c->target);
    td__head h = {.g = b->g, .y = b->output, .opts = c->loss_opts};

    if (!field)
        return TD_FAIL(TD_EINVAL, "compile: samples have no field '%s' to compare the output with",
                       c->target);
    const td__loss_def *d = td__loss_find(c->loss, field);
    if (!d)
        return TD_FAIL(TD_EINVAL, "compile: there is no loss '%s' (td_loss_list names all)",
                       c->loss);
    TD_TRY(check_loss(d, field, b->output));
    h.target = td_build_input(b, c->target);
    if (d->kind != TD_HEAD_CLASSES && h.target)
        td__head_match_numbers(&h);
    out->loss = d->build(&h);
    out->target = field->name;
    if (d->kind == TD_HEAD_CLASSES)
        td__head_note_targets(&h, field->name, out);
    return named_metrics(c, &h, d, out);
}

static td_status finish(const building *in, td_build *b)
{
    td__model_nodes *out = in->out;

    if (in->missing)
        return TD_FAIL(TD_EINVAL,
                       "compile: the model cannot read field '%s': samples do not have it, or it "
                       "has too many axes",
                       in->missing);
    if (td_graph_status(b->g))
        return TD_FAIL(td_graph_status(b->g), "compile: %s", td_graph_error(b->g));
    if (!b->output)
        return TD_FAIL(TD_EINVAL, "compile: the build function has set no output");
    out->output = b->output;
    out->loss = b->loss;
    if (!out->loss)
        TD_TRY(judge(in->model, b, out));
    for (int i = 0; i < b->n_metrics && i < TD_MAX_METRICS; i++)
        TD_TRY(add_metric(out, b->metrics[i].name, b->metrics[i].node,
                          b->metrics[i].higher_is_better, false));
    if (td_graph_status(b->g))
        return TD_FAIL(td_graph_status(b->g), "compile: %s", td_graph_error(b->g));
    return TD_OK;
}

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    td__compiled *c = user;
    building in = {.model = c, .out = out};
    td_build b = {.g = g, .rows = rows, .inside = &in};

    td_status st = c->build(c->user, &b);
    if (st)
        return TD_FAIL(st, "compile: the build function failed: %s", td_status_text(st));
    return finish(&in, &b);
}

/* The model as the trainer knows it; valid as long as c. */
static td__model compiled_model(td__compiled *c)
{
    return (td__model){.build = build, .user = c};
}

/* ---- The trainer ----------------------------------------------------------------------------- */

static td_status keep_text(td__arena *a, const char *text, const char *otherwise, const char **out)
{
    *out = td__arena_strdup(a, text ? text : otherwise);
    return *out ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a trainer");
}

static td_status take_model(td_trainer *t, td_build_fn build_fn, void *user,
                            const td_compile_opts *o, const td__dataset *samples)
{
    td__compiled *c = &t->model;
    int n = o->n_metrics > 0 ? o->n_metrics : 0;

    if (n > TD__MAX_METRICS)
        return TD_FAIL(TD_EINVAL, "compile: more than %d metrics", TD__MAX_METRICS);
    *c = (td__compiled){.build = build_fn,
                        .user = user,
                        .loss_opts = o->loss_opts,
                        .n_metrics = o->n_metrics,
                        .n_fields = samples->n_fields};
    memcpy(c->fields, samples->fields, sizeof c->fields);
    TD_TRY(keep_text(t->arena, o->loss, "auto", &c->loss));
    TD_TRY(keep_text(t->arena, o->target, "y", &c->target));
    const char **names = td__arena_alloc(t->arena, ((size_t)n + 1) * sizeof *names);
    if (!names)
        return TD_FAIL(TD_ENOMEM, "no memory for a trainer");
    for (int i = 0; i < n; i++)
        TD_TRY(keep_text(t->arena, o->metrics[i], "", &names[i]));
    c->metrics = names;
    return TD_OK;
}

/* ---- Keys of a job --------------------------------------------------------------------------- */

/* Others would be read and not be followed: a program has members of the options for them. */
static td_status check_key(const char *key_value)
{
    char path[64];
    size_t n = strcspn(key_value, "=");

    snprintf(path, sizeof path, "%.*s", n < sizeof path ? (int)n : (int)sizeof path - 1, key_value);
    if (key_value[n] && td__job_is_sync_key(path))
        return TD_OK;
    return TD_FAIL(TD_EINVAL,
                   "compile: keys: expected KEY=VALUE with a key of train.sync, or one of parallel "
                   "that says how ranks train together, found '%.200s'",
                   key_value);
}

/* The keys go through a job with this optimizer, which checks them as a job file's. Its texts are
 * the config's. */
static td_status read_keys(td_trainer *t, const td_compile_opts *o, td__sync_config *sync)
{
    static const char TEXT[] = "name: keys\nmodel: [linear]\ndata: {source: spirals}\n"
                               "train: {epochs: 1}\n";
    char optimizer[80], batch[40], pieces[60];
    const char *own[] = {optimizer, batch, pieces};
    td_status st = TD_OK;

    snprintf(optimizer, sizeof optimizer, "train.optimizer.name=%s",
             o->optimizer.name ? o->optimizer.name : "adamw");
    snprintf(batch, sizeof batch, "train.batch=%" PRId64, o->batch ? o->batch : (int64_t)BATCH);
    snprintf(pieces, sizeof pieces, "train.micro_batches=%d", o->micro_batches);
    TD_TRY(td_job_parse(TEXT, "compile", &t->keys));
    for (int i = 0; i < TD_LEN(own) - !o->micro_batches && !st; i++)
        st = td_job_set(t->keys, own[i]);
    for (int i = 0; i < o->n_keys && !st; i++) {
        TD_TRY(check_key(o->keys[i]));
        st = td_job_set(t->keys, o->keys[i]);
    }
    TD_TRY(st);
    int zero = sync->zero;
    *sync = td__job_train(t->keys->job)->sync;
    sync->zero = sync->zero ? sync->zero : zero;
    return TD_OK;
}

/* ---- Compiling ------------------------------------------------------------------------------- */

static td__train_opts train_opts(const td_compile_opts *o)
{
    td__train_opts t = {.name = o->name ? o->name : "model",
                        .batch = o->batch ? o->batch : BATCH,
                        .epochs = o->epochs || o->steps ? o->epochs : 1,
                        .steps = o->steps,
                        .micro_batches = o->micro_batches,
                        .accumulate = o->accumulate,
                        .threads = o->threads,
                        .precision = o->precision,
                        .backend = o->backend,
                        .seed = o->seed,
                        .optim = o->optimizer,
                        .schedule = o->schedule,
                        .valid_every = o->eval_every,
                        .eval_batch = o->eval_batch,
                        .watch = o->watch,
                        .patience = o->patience,
                        .min_delta = o->min_delta,
                        .prefetch = o->prefetch,
                        .data_threads = o->data_threads,
                        .checkpoint_dir = o->checkpoint_dir,
                        .checkpoint_every = o->checkpoint_every,
                        .checkpoint_keep = o->checkpoint_keep,
                        .comm = o->comm,
                        .sync = {.zero = o->zero}};
    if (!t.optim.name)
        t.optim.name = "adamw";
    if (o->comm && td_comm_rank(o->comm) > 0) {
        t.blank = o->resume; /* rank 0 sends the weights; first ones are the same on all */
        t.checkpoint_dir = NULL;
    }
    return t;
}

static td_status make(td_trainer *t, const td_compile_opts *o)
{
    td__dataset *const parts[TD_PART_COUNT] = {[TD_PART_TRAIN] = t->parts[0]->samples,
                                               [TD_PART_VALID] =
                                                   t->parts[1] ? t->parts[1]->samples : NULL};
    td__model model = compiled_model(&t->model);
    td__train_opts opts = train_opts(o);
    bool found;

    if (o->n_keys)
        TD_TRY(read_keys(t, o, &opts.sync));
    t->split = td__sync_division_of(&opts.sync).split_params;
    t->late = o->resume || t->split || opts.sync.zero;
    TD_TRY(td__data_of("memory", parts, &t->data));
    TD_TRY(td__trainer_create(&opts, &model, t->data, &t->trainer));
    td__callbacks_init(&t->callbacks, &o->callbacks, &t->stop, "",
                       o->comm ? td_comm_rank(o->comm) : 0);
    TD_TRY(td__trainer_observe(t->trainer, &t->callbacks.observer));
    return o->resume && opts.checkpoint_dir ? td__trainer_resume(t->trainer, &found) : TD_OK;
}

td_status td_trainer_compile(td_build_fn build_fn, void *user, td_dataset *train, td_dataset *valid,
                             const td_compile_opts *opts, td_trainer **out)
{
    static const td_compile_opts NONE;
    const td_compile_opts *o = opts ? opts : &NONE;
    td_status st;

    *out = NULL;
    if (!build_fn || !train)
        return TD_FAIL(TD_EINVAL, "compile: expected a build function and training data");
    if (o->resume && !o->checkpoint_dir)
        return TD_FAIL(TD_EINVAL, "compile: resume needs checkpoint_dir");
    td_trainer *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for a trainer");
    t->comm = o->comm;
    t->parts[0] = td__pipeline_retain(train);
    t->parts[1] = td__pipeline_retain(valid);
    TD_TRY_OR(st, fail, td__arena_create(&t->arena));
    TD_TRY_OR(st, fail, take_model(t, build_fn, user, o, train->samples));
    st = make(t, o);
    if (st && o->comm) { /* the others must not wait for this rank */
        char why[512];
        snprintf(why, sizeof why, "%s", td_last_error());
        td_comm_abort(o->comm, why);
        st = TD_FAIL(st, "%s", why);
    }
    if (st)
        goto fail;
    *out = t;
    return TD_OK;
fail:
    td_trainer_destroy(t);
    return st;
}
