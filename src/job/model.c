/* model.c -- a resolved `model` section into nodes, for data whose fields are known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/cost.h"
#include "graph/frozen.h"
#include "graph/origin.h"
#include "graph/place_by_hand.h"
#include "graph/readers.h"
#include "job/build.h"

enum { MAX_NAME = 100 };

td_status td__build_fail(td__build *b, td_status st)
{
    if (!b->status) {
        b->status = st;
        snprintf(b->error, sizeof b->error, "%s", td_last_error());
    }
    return b->status;
}

td_node *td__layer_fail(const td__layer *l, const char *fmt, ...)
{
    td_status code = td_graph_status(l->g) == TD_ENOMEM ? TD_ENOMEM : TD_EINVAL;
    const char *kind = td__keys_text(l->attrs, "layer");
    char text[480];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!l->b->status)
        td__build_fail(l->b, TD_FAIL(code, "%s: %s (%s): %s", td__tree_where(l->attrs).text,
                                     l->path, kind ? kind : td__keys_text(l->attrs, "name"), text));
    return NULL;
}

int64_t td__layer_int(const td__layer *l, const char *key)
{
    return td__keys_int(l->keys, l->attrs, key);
}

void td__layer_pair(const td__layer *l, const char *key, int out[2])
{
    const td__tree *t = td__tree_get(l->attrs, key);
    const td__key *k = td__keys_find(l->keys, key);

    if (!t || t->kind == TD_TREE_SCALAR) {
        out[0] = out[1] = (int)td__layer_int(l, key);
    } else {
        out[0] = (int)td__key_number(k, t->first->text);
        out[1] = (int)td__key_number(k, t->last->text);
    }
}

double td__layer_real(const td__layer *l, const char *key)
{
    return td__keys_real(l->attrs, key);
}

bool td__layer_bool(const td__layer *l, const char *key)
{
    return td__keys_bool(l->attrs, key);
}

static const td__field *find_field(const td__job *j, const char *name)
{
    for (int i = 0; i < j->n_fields; i++)
        if (!strcmp(j->fields[i].name, name))
            return &j->fields[i];
    return NULL;
}

/* The data field that the model reads first. */
static const td__field *main_field(const td__job *j)
{
    return find_field(j, td__keys_text(j->model, "input"));
}

/* The data field that a layer reads: the one that `from` names, else the model's. */
static const td__field *field_of(const td__layer *l)
{
    const char *from = td__keys_text(l->attrs, "from");
    const td__field *named = from ? find_field(l->b->job, from) : NULL;

    return named ? named : main_field(l->b->job);
}

const td__field *td__layer_field(const td__layer *l, const td_node *x)
{
    const char *name = x ? td_node_name(x) : NULL;

    for (int i = 0; name && i < l->b->out->n_inputs; i++)
        if (!strcmp(l->b->out->inputs[i], name))
            return find_field(l->b->job, name);
    return NULL;
}

int64_t td__layer_size(const td__layer *l, const char *key)
{
    int64_t v = td__layer_int(l, key);
    const td__field *x = field_of(l), *y = l->b->target;

    if (v == TD__SIZE_CLASSES) {
        v = y->classes > 0 ? y->classes : td_shape_count(&y->shape);
        if (v < 1)
            td__layer_fail(l, "%s: the target %s has no classes", key, y->name);
    } else if (v == TD__SIZE_VOCAB) {
        v = x->classes;
        if (v < 1)
            td__layer_fail(l, "%s: the data field %s has no ids; give a number", key, x->name);
    } else if (v == TD__SIZE_DATA) {
        v = x->shape.ndim > 0 ? x->shape.dim[0] : 0;
        if (v < 1)
            td__layer_fail(l, "%s: the data field %s is not a sequence", key, x->name);
    }
    return v < 1 ? 0 : v;
}

td_node *td__build_input(td__build *b, const char *name)
{
    const td__field *f = find_field(b->job, name);
    td__model_nodes *o = b->out;

    if (!f)
        return NULL;
    for (int i = 0; i < o->n_inputs; i++)
        if (!strcmp(o->inputs[i], name))
            return td_graph_find(b->g, name);
    td_shape s = {.ndim = f->shape.ndim + 1, .dim = {b->rows}};
    if (s.ndim > TD_MAX_DIMS || o->n_inputs == TD__MAX_MODEL_INPUTS) {
        td__build_fail(b, TD_FAIL(TD_EINVAL,
                                  "%s: the model cannot read the data field %s: too many"
                                  " axes or fields",
                                  b->job->file, name));
        return NULL;
    }
    for (int i = 1; i < s.ndim; i++)
        s.dim[i] = f->shape.dim[i - 1];
    o->inputs[o->n_inputs++] = f->name;
    return td_input(b->g, f->name, f->dtype, s);
}

/* What layers work on: bytes of images become 0..1, other whole numbers that are no ids floats. */
static td_node *as_activation(td__build *b, const td__field *f, td_node *x)
{
    if (!x || f->classes > 0 || td_dtype_is_float(f->dtype))
        return x;
    x = td_cast(b->g, x, TD_F32);
    return f->dtype == TD_U8 ? td_affine(b->g, x, 1.0 / 255, 0) : x;
}

static td_node *find_tap(td__build *b, const char *name)
{
    for (int i = b->n_taps - 1; i >= 0; i--)
        if (!strcmp(b->taps[i].name, name))
            return b->taps[i].node;
    const td__field *f = find_field(b->job, name);
    return f ? as_activation(b, f, td__build_input(b, name)) : NULL;
}

td_node *td__layer_tap(const td__layer *l, const td__tree *name)
{
    td__build *b = l->b;
    td_node *n = find_tap(b, name->text);
    char known[160] = "";

    if (n || b->status)
        return n;
    for (int i = 0; i < b->n_taps && strlen(known) < 100; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 b->taps[i].name);
    td__build_fail(b, TD_FAIL(TD_EINVAL, "%s: %s: no earlier layer is named %s (with `as`)%s%s",
                              td__tree_where(name).text, l->path, td__tree_found(name).text,
                              known[0] ? "; there are: " : "", known));
    return NULL;
}

/* Weights and gradients must fit in this machine's memory; looked at before anything is
 * allocated, since a graph holds no numbers. */
static td_status check_size(const td__layer *l, int from)
{
    td__build *b = l->b;
    const char *kind = td__keys_text(l->attrs, "layer");
    td__cost c = td__graph_cost(b->g, from, td_graph_node_count(b->g));

    if (__builtin_add_overflow(b->params, c.params, &b->params) || b->params > b->max_params)
        return TD_FAIL(TD_EINVAL,
                       "%s: %s (%s): %.3g parameters, but this machine has memory for %.3g with "
                       "their gradients",
                       td__tree_where(l->attrs).text, l->path,
                       kind ? kind : td__keys_text(l->attrs, "name"), (double)b->params,
                       (double)b->max_params);
    return TD_OK;
}

/* One row of the layer table, for one sample. */
static td_status add_row(void *user, const char *name, const char *kind, const td_node *y, int from,
                         int to)
{
    td__build *b = user;
    td__job *j = b->job;
    td__cost c = td__graph_cost(b->g, from, to);
    td_shape s = td_node_shape(y), out = {.ndim = s.ndim > 0 ? s.ndim - 1 : 0};

    for (int i = 0; i < out.ndim; i++)
        out.dim[i] = s.dim[i + 1];
    if (j->n_rows == j->cap_rows) { /* the arena keeps the old ones: they only double */
        int cap = j->cap_rows ? 2 * j->cap_rows : 32;
        td__layer_row *rows = td__arena_alloc(j->model_arena, (size_t)cap * sizeof *rows);
        if (!rows)
            return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
        if (j->n_rows)
            memcpy(rows, j->rows, (size_t)j->n_rows * sizeof *rows);
        j->rows = rows;
        j->cap_rows = cap;
    }
    const char *own = td__arena_strdup(j->model_arena, name);
    if (!own)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
    j->rows[j->n_rows++] = (td__layer_row){.name = own,
                                           .kind = kind,
                                           .out = out,
                                           .params = c.params,
                                           .flops = c.flops / (double)b->rows};
    return TD_OK;
}

char *td__build_shape_text(const td_shape *s, char *text, size_t nbytes)
{
    size_t at = (size_t)snprintf(text, nbytes, "(N");
    for (int i = 1; i < s->ndim && at < nbytes; i++)
        at += (size_t)snprintf(text + at, nbytes - at, ", %lld", (long long)s->dim[i]);
    if (at < nbytes)
        snprintf(text + at, nbytes - at, ")");
    return text;
}

/* in: what the layer was given; NULL: not known. */
static td_status graph_failure(const td__layer *l, const td_node *in)
{
    td__build *b = l->b;
    const char *why = td_graph_status(l->g) ? td_graph_error(l->g) : "the layer has no result";
    char shape[128];

    if (b->status)
        return b->status;
    if (in && b->last && !td__tree_get(l->attrs, "from")) {
        td_shape s = td_node_shape(in);
        bool flat = strcmp(td__keys_text(b->last, "layer"), "flatten") == 0;
        td__layer_fail(l, "%s; its input %s comes from %s (%s)%s", why,
                       td__build_shape_text(&s, shape, sizeof shape), b->last_name,
                       td__tree_where(b->last).text,
                       flat ? ": remove that layer, or put it after this one" : "");
    } else {
        td__layer_fail(l, "%s", why);
    }
    return b->status;
}

static bool has_inner(const td__layer_def *d)
{
    for (int i = 0; i < TD__LAYER_KEYS && d->keys[i].path; i++)
        if (d->keys[i].type == TD_KEY_TREE)
            return true;
    return false;
}

static td_status add_tap(td__build *b, const td__layer *l, td_node *y)
{
    const td__tree *as = td__tree_get(l->attrs, "as");

    if (!as)
        return TD_OK;
    if (b->n_taps == TD__MAX_TAPS)
        return TD_FAIL(TD_EINVAL, "%s: %s: more than %d taps", td__tree_where(as).text, l->path,
                       TD__MAX_TAPS);
    b->taps[b->n_taps].name = as->text;
    b->taps[b->n_taps++].node = y;
    return TD_OK;
}

/* A layer's name begins those of its params: in checkpoints, tables, and after a '/' in the
 * optimizer's. */
static td_status check_name(const td__layer *l, const td__tree *name)
{
    bool good = name->text[0] && strlen(name->text) <= MAX_NAME;

    for (const char *c = name->text; *c; c++)
        good = good && *c != '/' && (unsigned char)*c >= ' ' && *c != 0x7f;
    return good ? TD_OK
                : TD_FAIL(TD_EINVAL,
                          "%s: %s.name: expected 1 to %d characters without '/' and line ends, "
                          "found %s",
                          td__tree_where(name).text, l->path, MAX_NAME, td__tree_found(name).text);
}

/* What nodes of the tree's layer have as their origin: file and line, if it is from a file. */
static const char *origin_of(td__build *b, const td__tree *t)
{
    const char *slash = t->source ? strrchr(t->source, '/') : NULL;
    const char *file = slash ? slash + 1 : t->source;
    return t->line > 0 && file ? td__arena_printf(b->arena, "%.64s:%d", file, t->line) : NULL;
}

/* One item of a list. The number of its kind in the list makes its name; numbers: by kind. */
static td_status build_layer(td__build *b, const td__tree *item, const char *path,
                             const char *prefix, int *numbers, td_node **x)
{
    const char *kind = td__keys_text(item, "layer"), *name = td__keys_text(item, "name");
    const td__layer_def *d = td__layer_find(kind);
    const td__tree *source = td__tree_get(item, "from");
    int number = ++numbers[td__layer_kind(d)], from = td_graph_node_count(b->g);

    td__layer l = {
        .b = b, .g = b->g, .arena = b->arena, .path = path, .attrs = item, .keys = d->keys};
    l.name = name
                 ? td__arena_printf(b->arena, "%s%s%s", prefix, *prefix ? "." : "", name)
                 : td__arena_printf(b->arena, "%s%s%s%d", prefix, *prefix ? "." : "", kind, number);
    if (!l.name)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", b->job->file);
    if (++b->n_layers > TD__MAX_LAYERS)
        return TD_FAIL(TD_EINVAL, "%s: %s: more than %d layers", td__tree_where(item).text, path,
                       TD__MAX_LAYERS);
    if (name)
        TD_TRY(check_name(&l, td__tree_get(item, "name")));
    if (source)
        *x = td__layer_tap(&l, source);
    const td_node *in = *x;
    const td__tree *place = td__tree_get(item, "place");
    int outer = td__graph_wish(b->g, -1);
    td__graph_wish(b->g, place ? (int)td__layer_int(&l, "place") : outer);
    const char *around = td__graph_set_origin(b->g, origin_of(b, item));
    *x = b->status ? NULL : d->build(&l, *x);
    td__graph_set_origin(b->g, around);
    td__graph_wish(b->g, outer);
    if (!*x || b->status || td_graph_status(b->g))
        return graph_failure(&l, in);
    b->last = item;
    b->last_name = l.name;
    if (!has_inner(d)) {
        TD_TRY(check_size(&l, from));
        if (b->record)
            TD_TRY(add_row(b, l.name, d->name, *x, from, td_graph_node_count(b->g)));
    }
    return add_tap(b, &l, *x);
}

static td_status build_list(td__build *b, const td__tree *list, const char *path,
                            const char *prefix, td_node **x)
{
    int i = 0, numbers[TD__LAYER_KINDS] = {0};

    for (const td__tree *item = list->first; item; item = item->next, i++) {
        char *item_path = td__arena_printf(b->arena, "%s.%d", path, i);
        if (!item_path)
            return TD_FAIL(TD_ENOMEM, "%s: out of memory", b->job->file);
        TD_TRY(build_layer(b, item, item_path, prefix, numbers, x));
    }
    return TD_OK;
}

td_node *td__layer_inner(const td__layer *l, const char *key, const char *prefix, td_node *x)
{
    char *path = td__arena_printf(l->arena, "%s.%s", l->path, key);
    td_status st = path ? build_list(l->b, td__tree_get(l->attrs, key), path, prefix, &x)
                        : TD_FAIL(TD_ENOMEM, "%s: out of memory", l->b->job->file);

    if (!st)
        return x;
    td__build_fail(l->b, st);
    return NULL;
}

static td_status build_ready(td__build *b, const td__tree *model, td_node **x)
{
    const td__layer_def *d = td__ready_find(td__keys_text(model, "name"));
    int from = td_graph_node_count(b->g);
    td__layer l = {.b = b,
                   .g = b->g,
                   .arena = b->arena,
                   .path = "model",
                   .attrs = model,
                   .keys = d->keys,
                   .name = d->name};

    td__graph_set_origin(b->g, origin_of(b, model));
    *x = d->build(&l, *x);
    td__graph_set_origin(b->g, NULL);
    if (!*x || b->status || td_graph_status(b->g))
        return graph_failure(&l, NULL);
    TD_TRY(check_size(&l, from));
    return b->record ? td__graph_cut(b->g, from, add_row, b) : TD_OK;
}

static td_status build_all(td__build *b)
{
    td__job *j = b->job;
    const td__tree *model = j->model, *layers = td__tree_get(model, "layers");
    const td__field *f = main_field(j);
    td_node *x = as_activation(b, f, td__build_input(b, f->name));

    if (b->status)
        return b->status;
    if (td_graph_status(b->g))
        return TD_FAIL(td_graph_status(b->g), "%s: %s", j->file, td_graph_error(b->g));
    if (layers && layers->kind == TD_TREE_LIST)
        TD_TRY(build_list(b, layers, "model.layers", "", &x));
    else
        TD_TRY(build_ready(b, model, &x));
    return td__build_heads(b, x);
}

static bool is_table(const void *nodes, const char *name)
{
    const td__model_nodes *n = nodes;

    for (int k = 0; k < n->n_tables; k++)
        if (!strcmp(n->table[k].param, name))
            return true;
    return false;
}

/* Ids of tables on servers become row numbers of the batch: nobody else may take them for ids. */
static td_status check_tables(const td__build *b)
{
    for (int k = 0; k < b->out->n_tables; k++) {
        const td__model_table *t = &b->out->table[k];
        const td_node *other =
            td__graph_reads_otherwise(b->g, td_graph_find(b->g, t->ids), is_table, b->out);
        if (other)
            return TD_FAIL(TD_EINVAL,
                           "%s: %s: its ids, the data field %s, are read by %s too, which is not "
                           "on servers: set on: servers there, or nowhere",
                           b->job->file, t->param, t->ids, td_node_name(other));
    }
    return TD_OK;
}

static int64_t max_params(void)
{
    enum { BYTES_PER_PARAM = 8 }; /* the weight and its gradient */
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? pages / BYTES_PER_PARAM * size : INT64_C(1) << 40;
}

static td_status build_for(td__job *j, td_graph *g, int64_t rows, bool record, td__model_nodes *out)
{
    td_status st;

    *out = (td__model_nodes){.n_inputs = 0};
    td__build *b = td__calloc(1, sizeof *b);
    if (!b)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
    b->job = j;
    b->g = g;
    b->rows = rows;
    b->out = out;
    b->record = record;
    b->max_params = max_params();
    b->target = find_field(j, j->loss.target);
    TD_TRY_OR(st, done, td__arena_create(&b->arena));
    td__graph_freeze(g, j->n_freeze ? td__build_frozen : NULL, b);
    st = build_all(b);
    td__graph_freeze(g, NULL, NULL);
    if (!st && !b->status)
        st = td__build_check_frozen(b);
    if (!st && !b->status)
        st = check_tables(b);
    if (b->status) /* calls after the first failure may have left texts of their own */
        st = TD_FAIL(b->status, "%s", b->error);
done:
    td__arena_destroy(b->arena);
    td__free(b);
    return st;
}

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    return build_for(user, g, rows, false, out);
}

static td_status check_field(const td__job *j, const char *path)
{
    const td__tree *t = td__keys_node(j->root, path);
    char names[300] = "";

    if (find_field(j, t->text))
        return TD_OK;
    for (int i = 0; i < j->n_fields; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 j->fields[i].name);
    return TD_FAIL(TD_EINVAL, "%s: %s: the data has no field %s; it has: %s",
                   td__tree_where(t).text, path, td__tree_found(t).text, names);
}

static td_status check_watch(const td__job *j, const td__model_nodes *nodes)
{
    const td__tree *t = td__keys_node(j->root, "train.early_stop.watch");
    char names[300] = "loss";
    bool found = !strcmp(t->text, "loss");

    for (int i = 0; i < nodes->n_metrics; i++) {
        found = found || !strcmp(t->text, nodes->metrics[i].name);
        snprintf(names + strlen(names), sizeof names - strlen(names), ", %s",
                 nodes->metrics[i].name);
    }
    if (found)
        return TD_OK;
    return TD_FAIL(TD_EINVAL, "%s: train.early_stop.watch: expected one of %s, found %s",
                   td__tree_where(t).text, names, td__tree_found(t).text);
}

td_status td__job_model(td__job *j, const td__field *fields, int n_fields, td__model *out)
{
    enum { PROBE_ROWS = 2 }; /* one row is a special case for norms */
    td_graph *g = NULL;
    td__model_nodes nodes;
    td_status st;

    *out = (td__model){.build = NULL};
    TD_ASSERT(n_fields >= 0 && n_fields <= TD__MAX_FIELDS, "%d fields", n_fields);
    for (int i = 0; i < n_fields; i++)
        j->fields[i] = fields[i];
    j->n_fields = n_fields;
    j->hint = NULL;
    j->rows = NULL;
    j->n_rows = j->cap_rows = 0;
    td__arena_destroy(j->model_arena);
    j->model_arena = NULL;
    TD_TRY(td__arena_create(&j->model_arena));
    TD_TRY(check_field(j, "model.input"));
    TD_TRY(check_field(j, "loss.target"));
    TD_TRY(td_graph_create(&g));
    TD_TRY_OR(st, done, build_for(j, g, PROBE_ROWS, true, &nodes));
    j->places = td__graph_last_wish(g);
    TD_TRY_OR(st, done, check_watch(j, &nodes));
    *out = (td__model){.build = build, .user = j, .lookup = &j->lookup};
done:
    td_graph_destroy(g);
    return st;
}

const char *td__job_hint(const td__job *j)
{
    return j->hint;
}

int td__job_last_place(const td__job *j)
{
    return j->model_arena ? j->places : -1;
}

int td__job_layers(const td__job *j, const td__layer_row **out)
{
    *out = j->rows;
    return j->n_rows;
}
