/* check.c -- `tandem check`: everything that can be known of a job without training. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/human.h"
#include "base/fail.h"
#include "base/file.h"
#include "parallel/zero.h"
#include "api/crew.h"
#include "auto_mesh.h"
#include "check_pipeline.h"
#include "check_plan.h"
#include "graph/backend_auto.h"
#include "graph/draw.h"
#include "session.h"
#include "train/memory.h"

enum { MOST_RANKS = 4096 };

static void print_memory(const td__session *s)
{
    td_memory_plan m = td_program_memory(td__trainer_program(s->trainer));
    size_t optimizer = td__trainer_optimizer_nbytes(s->trainer);
    const struct {
        const char *name;
        size_t nbytes;
    } rows[] = {{"activations", m.activations}, {"parameters", m.params},
                {"gradients", m.grads},         {"optimizer state", optimizer},
                {"running averages", m.states}, {"packed weights", m.packed},
                {"scratch", m.scratch},         {"constants", m.constants},
                {"inputs", m.inputs},           {"total", m.total + optimizer}};
    char b[TD__HUMAN];

    printf("\nmemory of one compute thread (a micro-batch of %lld samples)\n",
           (long long)td__trainer_micro_batch_rows(s->trainer));
    for (int i = 0; i < TD_LEN(rows); i++)
        if (rows[i].nbytes)
            printf("  %-18s %10s\n", rows[i].name, td__human_bytes((double)rows[i].nbytes, b));
    printf("  %-18s %10s\n", "without reuse", td__human_bytes((double)m.activations_unshared, b));
}

/* A line of the table: one stage of parallel.zero. */
static void print_case(const td__memory_case *c, bool chosen, const td__train_memory *m)
{
    char b[TD__HUMAN];

    if (c->ranks > 1)
        printf("  zero %d%s", c->sync->zero, chosen ? " *" : "  ");
    else
        printf("  %-8s", "");
#define X(id, name) printf(" %11s", td__human_bytes((double)m->id, b));
    TD__MEMORY_MAP(X)
#undef X
    printf(" %11s", td__human_bytes((double)m->total, b));
    if (m->changing)
        printf(" %11s", td__human_bytes((double)m->changing, b));
    putchar('\n');
}

/* So many ranks on this host. */
static td__memory_case case_of(const td__session *s, int ranks, bool elastic)
{
    const char *transport = td__job_parallel_opts(s->job)->transport;
    return (td__memory_case){.ranks = ranks,
                             .shared = !transport || strcmp(transport, "tcp") != 0,
                             .saves = true,
                             .elastic = elastic};
}

static td_status print_ranks(const td__session *s, int ranks, bool elastic)
{
    const td__sync_config *job = &s->opts.sync;
    bool parts = job->mesh.size[TD_AXIS_PIPELINE] > 1 || job->mesh.size[TD_AXIS_TENSOR] > 1 ||
                 job->tensor_pieces > 1; /* only what the job says */
    int first = parts ? job->zero : 0;
    int last = parts ? job->zero : ranks > 1 ? TD__ZERO_STAGES - 1 : 0;

    printf("\nmemory of %s rank, of %d on this host, the one that writes checkpoints\n  %8s",
           elastic ? "an elastic" : "a", ranks, "");
#define X(id, name) printf(" %11s", name);
    TD__MEMORY_MAP(X)
#undef X
    printf(" %11s%s\n", "total", elastic && ranks > 1 ? " on resize" : "");
    for (int zero = first; zero <= last; zero++) {
        td__sync_config sync = *job;
        td__memory_case c = case_of(s, ranks, elastic);
        td__train_memory m;
        c.sync = &sync;
        sync.zero = zero;
        TD_TRY(td__trainer_memory(s->trainer, &c, &m));
        print_case(&c, zero == job->zero, &m);
    }
    return TD_OK;
}

/* What the ranks that share a GPU need of it: ranks take GPUs in turn. */
static td_status print_gpu(const td__session *s, int ranks, bool elastic)
{
    const td__gpus *gpus = td__backend_traits(s->opts.backend).gpus;
    td__memory_case c = case_of(s, ranks, elastic);
    td__train_memory m;
    td__gpu_info gpu;
    char a[TD__HUMAN], b[TD__HUMAN], each[40] = "";
    int n = 1;
    if (!gpus || gpus->count(&n) || n < 1 || gpus->describe(0, &gpu))
        return TD_OK;
    TD_TRY(td__trainer_memory(s->trainer, &c, &m));
    int share = (ranks + n - 1) / n;
    size_t needed = (size_t)share * m.device;
    if (share > 1)
        snprintf(each, sizeof each, " by %d ranks", share);
    printf("  of the GPU's memory%s: %s of %s (%s)%s\n", each, td__human_bytes((double)needed, a),
           td__human_bytes((double)gpu.memory, b), gpu.name,
           needed > gpu.memory ? ": too much; use a smaller batch or more micro-batches" : "");
    return TD_OK;
}

/* Of the job as it is, also where it was arranged by --parallel auto. */
static td_status print_plan(const td__session *s, int ranks, const td__args *a)
{
    bool elastic = td__args_has(a, "elastic");
    td__memory_case c = case_of(s, ranks + s->opts.sync.servers, elastic); /* besides workers */
    c.sync = &s->opts.sync;
    return td__check_plan(s, &c, td__args_value(a, "plan"));
}

static td_status print_pipeline(const td__session *s, int ranks, const td__args *a)
{
    td__memory_case c = case_of(s, ranks, td__args_has(a, "elastic"));
    return td__check_pipeline(s, &c, td__args_has(a, "plan"), td__args_value(a, "plan"));
}

static void print_params(const td_params *ps)
{
    int tensors = 0;
    int64_t count = 0;
    char b[TD__HUMAN];

    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        tensors += !info.is_state;
        count += info.is_state ? 0 : (int64_t)info.count;
    }
    printf("\ntrained parameters %s in %d tensors\n", td__human_count(count, b), tensors);
}

static td_status print_columns(const td__session *s)
{
    td__text text = {0};
    td_status st = td__data_columns(s->data, &text);

    if (!st && text.used)
        fputs(text.data, stdout);
    td__text_fini(&text);
    return st;
}

static void print_data(const td__session *s)
{
    const td__field *fields;
    char shape[128], b[TD__HUMAN];
    int n = td__data_fields(s->data, &fields);

    fputs("\ndata\n", stdout);
    for (int p = 0; p < TD_PART_COUNT; p++) {
        const td__dataset *d = td__data_part(s->data, (td__part)p);
        if (d)
            printf("  %-18s %10s samples\n", td__part_name((td__part)p),
                   td__human_count(d->count, b));
    }
    for (int i = 0; i < n; i++) {
        printf("  field %-12s %10s %s", fields[i].name, td_dtype_name(fields[i].dtype),
               td_shape_text(&fields[i].shape, shape, sizeof shape));
        if (fields[i].classes)
            printf(", %lld classes", (long long)fields[i].classes);
        putchar('\n');
    }
}

/* The end of its name says what a file is to be. */
static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

static td_status check_graph_name(const char *path)
{
    if (!path)
        return TD_OK;
    if (!ends_with(path, ".dot") && !ends_with(path, ".svg"))
        return TD_FAIL(TD_EINVAL, "--graph: expected FILE.dot or FILE.svg, found '%.200s'", path);
    return td__output_check("graph", path);
}

static td_status draw(const td_graph *g, const char *path, const char *title)
{
    td__text t = {0};
    td_status st;

    if (ends_with(path, ".dot")) {
        FILE *f = fopen(path, "we");
        if (!f)
            return TD_FAIL(TD_EINVAL, "--graph: cannot write %s: %s", path, strerror(errno));
        st = td_graph_write_dot(g, f);
        return fclose(f) && !st ? TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno)) : st;
    }
    st = td__graph_svg(&t, g, title);
    if (!st)
        st = td__file_save(path, t.data, t.used);
    td__text_fini(&t);
    return st;
}

static td_status write_graph(const td__session *s, const char *path)
{
    td_graph *g;

    if (!path)
        return TD_OK;
    TD_TRY(td__session_graph(s, &g));
    td_status st = draw(g, path, td__job_name(s->job));
    td_graph_destroy(g);
    return st;
}

static td_status check(td__session *s, const td__args *a, int ranks)
{
    const td__layer_row *rows;

    TD_TRY(check_graph_name(td__args_value(a, "graph")));
    if (td__args_value(a, "plan"))
        TD_TRY(td__output_check("plan", td__args_value(a, "plan")));
    td_status st = td__args_job(s, a, td__args_at(a, 0));
    if (!st) {
        td__session_warn_renamed(s->job);
        st = td__session_data(s);
    }
    if (!st)
        td__session_warn_model(s, ranks);
    s->opts.blank = s->opts.untrained = true;
    if (!st)
        st = td__session_trainer(s);
    if (!st && !td__args_has(a, "ranks")) /* one for each GPU of a process that drives several */
        st = td__crew_size(s, &ranks);
    const td__rank_mesh *mesh = &s->opts.sync.mesh;
    bool arranged = mesh->size[TD_AXIS_TENSOR] > 1 || mesh->size[TD_AXIS_DATA] > 1;
    if (!st && arranged && td__args_has(a, "ranks"))
        st = td__train_check(&s->opts, &(td__sync_world){.ranks = ranks,
                                                         .elastic = td__args_has(a, "elastic"),
                                                         .starts = true});
    bool pipeline = s->opts.sync.mesh.size[TD_AXIS_PIPELINE] > 1;
    if (!st && pipeline)
        st = td__check_cut(s, ranks, td__args_has(a, "elastic"));
    if (!st)
        st = write_graph(s, td__args_value(a, "graph"));
    if (st || td__args_has(a, "quiet"))
        return st;
    st = td__job_write(s->job, stdout);
    if (st)
        return st;
    print_data(s);
    TD_TRY(print_columns(s));
    int n = td__job_layers(s->job, &rows);
    fputs("\nlayers, for one sample\n", stdout);
    td__print_layers(stdout, rows, n);
    print_params(td__trainer_params(s->trainer));
    print_memory(s);
    if (td__auto_mesh_wanted(a)) {
        td__auto_mesh best;
        TD_TRY(td__auto_mesh_choose(s, a, ranks, &best));
        putchar('\n');
        td__auto_mesh_print(&best);
        s->opts.sync.mesh = best.mesh;
        pipeline = best.mesh.size[TD_AXIS_PIPELINE] > 1;
    }
    TD_TRY(print_ranks(s, ranks, td__args_has(a, "elastic")));
    TD_TRY(print_gpu(s, ranks, td__args_has(a, "elastic")));
    if (pipeline)
        TD_TRY(print_pipeline(s, ranks, a));
    else if (td__args_has(a, "plan"))
        TD_TRY(print_plan(s, ranks, a));
    printf("\njob sha256:%s\n", s->digest);
    return TD_OK;
}

static int run(const td__args *a)
{
    td__session s = {0};
    long ranks;
    if (!td__args_int(a, "ranks", 1, MOST_RANKS, 1, &ranks))
        return TD_EXIT_USAGE;
    td_status st = check(&s, a, (int)ranks);
    int rc = st ? td__failure(a, st) : TD_EXIT_OK;

    td__session_fini(&s);
    return rc;
}

static const td__flag FLAGS[] = {
    TD_FLAG_SET,
    TD_FLAG_SYNC,
    TD_FLAG_PARALLEL,
    {.name = "ranks",
     .letter = 'n',
     .value = "N",
     .help = "print the memory that each of N ranks needs, by ZeRO stage (1)"},
    {.name = "elastic",
     .help = "for elastic ranks: with parallel.zero each also holds the shards of another"},
    {.name = "plan",
     .value = "[FILE]",
     .words = "FILE",
     .help = "print the communication plan of a step; with FILE, also write it there as a timeline "
             "that Perfetto opens"},
    {.name = "graph",
     .value = "FILE",
     .words = "FILE",
     .help = "draw the graph of a micro-batch, from inputs to loss: FILE.svg, or FILE.dot for "
             "Graphviz"},
    {.name = "quiet", .letter = 'q', .help = "print nothing; the exit status is the result"},
    {.name = NULL}};

static const char *const EXAMPLES[] = {
    "tandem check job.yaml -n 8",
    "also print the memory of a rank if 8 ranks train together",
    "tandem check job.yaml",
    "check the job and print its size and memory",
    "tandem check job.yaml --set train.batch=512 -q && echo fine",
    "in a script",
    "tandem check job.yaml --graph model.svg -q",
    "a picture of the model, for a browser",
    NULL};

const td__command td__command_check = {
    .name = "check",
    .args = "JOB.yaml",
    .summary = "check a job file without training",
    .text =
        "Reads the job, opens its data, builds its model, and prints the job as resolved (every "
        "key with its value), the parts of the data with their columns, the layer table, the "
        "number of parameters "
        "and the memory plan: of a compute thread and of a rank. Any error is one line and "
        "exit status 2.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
