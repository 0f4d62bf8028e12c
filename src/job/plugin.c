/* plugin.c -- see plugin.h: loading the plug-ins of a job, and what of them the job names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/map.h"

td_status td_plugin_fail(td_status st, const char *text)
{
    return TD_FAIL(st ? st : TD_EINVAL, "plug-in: %.400s", text ? text : "failed");
}

/* ---- Loading --------------------------------------------------------------------------------- */

static td_status out_of_memory(const td__job *j)
{
    return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
}

/* The path from the folder of the file that names it; never one that dlopen searches for. */
static char *path_of(const td__job *j, const td__tree *name)
{
    const char *file = name->line > 0 ? name->source : "", *slash = strrchr(file, '/');

    if (name->text[0] == '/')
        return td__arena_strdup(j->arena, name->text);
    return slash ? td__arena_printf(j->arena, "%.*s/%s", (int)(slash - file), file, name->text)
                 : td__arena_printf(j->arena, "./%s", name->text);
}

/* What dlopen would wait for, or end the process by: a pipe, a file that was not copied to its end.
 * All other faults are its to name. */
static const char *fault_of_file(const char *path)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) part;
    struct stat info;
    const char *fault = NULL;

    if (stat(path, &info) != 0)
        return NULL;
    if (!S_ISREG(info.st_mode))
        return "is not a regular file";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
        memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_phentsize == sizeof part)
        for (int i = 0; i < head.e_phnum && !fault; i++) {
            off_t at = (off_t)(head.e_phoff + (size_t)i * sizeof part);
            if (pread(fd, &part, sizeof part, at) != (ssize_t)sizeof part ||
                (part.p_type == PT_LOAD &&
                 (part.p_offset > (uint64_t)info.st_size ||
                  part.p_filesz > (uint64_t)info.st_size - part.p_offset)))
                fault = "is not whole: it ends before what its header names";
        }
    close(fd);
    return fault;
}

/* A list that can be searched and called: names and functions (`has`) are there. */
#define CHECK_LIST(p, list, count, has)                                 \
    do {                                                                \
        if ((p)->count < 0 || ((p)->count > 0 && !(p)->list))           \
            return "n_" #list " is not the number of its " #list;       \
        for (int i_ = 0; i_ < (p)->count; i_++)                         \
            if (!(p)->list[i_].name || !((p)->list[i_].has))            \
                return "one of its " #list " has no name, or no " #has; \
    } while (0)

static const char *fault_of_lists(const td_plugin *p)
{
    CHECK_LIST(p, layers, n_layers, build);
    CHECK_LIST(p, losses, n_losses, build);
    CHECK_LIST(p, metrics, n_metrics, build);
    CHECK_LIST(p, maps, n_maps, apply);
    CHECK_LIST(p, syncs, n_syncs, name); /* both functions are optional */
    return NULL;
}

/* The sizes of the structs when this abi began. */
enum {
    LEAST_PLUGIN = offsetof(td_plugin, n_syncs) + sizeof(int),
    LEAST_LAYER = offsetof(td_plugin_layer, build) + sizeof(void *),
    LEAST_LOSS = offsetof(td_plugin_loss, build) + sizeof(void *),
    LEAST_METRIC = offsetof(td_plugin_metric, build) + sizeof(void *),
    LEAST_MAP = offsetof(td_plugin_map, apply) + sizeof(void *),
    LEAST_SYNC = offsetof(td_plugin_sync, params) + sizeof(void *)
};

/* `count` structs of `size` bytes, as the plug-in lays them out, as ones of `own` bytes: what it
 * does not have is zero. NULL: no memory. */
static const void *copy_list(td__job *j, const void *list, int count, size_t size, size_t own)
{
    char *to = td__arena_alloc(j->arena, (size_t)count * own + 1);

    for (int i = 0; to && i < count; i++) {
        char *at = to + (size_t)i * own;
        memset(at, 0, own);
        memcpy(at, (const char *)list + (size_t)i * size, size);
    }
    return to;
}

#define COPY_LIST(p, list, count, size, least)                                           \
    do {                                                                                 \
        const size_t own_ = sizeof *(p)->list;                                           \
        if ((p)->count <= 0 || !(p)->list)                                               \
            break;                                                                       \
        if ((p)->size < (size_t)(least))                                                 \
            return #size " is not set: begin the td_plugin with TD_PLUGIN_HEAD";         \
        if ((p)->size > own_)                                                            \
            return "was built for a later version of the interface than this program's"; \
        (p)->list = copy_list(j, (p)->list, (p)->count, (p)->size, own_);                \
        if (!(p)->list)                                                                  \
            return "out of memory";                                                      \
    } while (0)

/* *out is the plug-in in the structs of this program. */
static const char *adopt(td__job *j, const td_plugin *theirs, td_plugin *out)
{
    if (theirs->size > sizeof *out)
        return "was built for a later version of the interface than this program's";
    if (theirs->size < LEAST_PLUGIN)
        return "size is not set: begin the td_plugin with TD_PLUGIN_HEAD";
    memset(out, 0, sizeof *out);
    memcpy(out, theirs, theirs->size);
    COPY_LIST(out, layers, n_layers, layer_size, LEAST_LAYER);
    COPY_LIST(out, losses, n_losses, loss_size, LEAST_LOSS);
    COPY_LIST(out, metrics, n_metrics, metric_size, LEAST_METRIC);
    COPY_LIST(out, maps, n_maps, map_size, LEAST_MAP);
    COPY_LIST(out, syncs, n_syncs, sync_size, LEAST_SYNC);
    return fault_of_lists(out);
}

static td_status load(td__job *j, const td__tree *name)
{
    const td_plugin *(*get)(void);
    char *path = path_of(j, name);

    if (!path)
        return out_of_memory(j);
    if (j->n_plugins == TD__MAX_PLUGINS)
        return TD_FAIL(TD_EINVAL, "%s: plugin.files: at most %d are possible",
                       td__tree_where(name).text, TD__MAX_PLUGINS);
    const char *fault = fault_of_file(path);
    if (fault)
        return TD_FAIL(TD_EINVAL, "%s: plugin.files: %.400s %s", td__tree_where(name).text, path,
                       fault);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return TD_FAIL(TD_EINVAL, "%s: plugin.files: %.400s", td__tree_where(name).text, dlerror());
    j->plugins[j->n_plugins].handle = handle; /* closed with the job */
    *(void **)(void *)&get = dlsym(handle, "td_plugin_get");
    const td_plugin *p = get ? get() : NULL;
    td_plugin *own = td__arena_alloc(j->arena, sizeof *own);
    j->plugins[j->n_plugins++].at = own;
    if (!own)
        return out_of_memory(j);
    *own = (td_plugin){0};
    if (!p)
        return TD_FAIL(TD_EINVAL, "%s: plugin.files: %s has no td_plugin_get",
                       td__tree_where(name).text, path);
    if (p->abi != TD_PLUGIN_ABI)
        return TD_FAIL(TD_EINVAL,
                       "%s: plugin.files: %s was built for version %u of the interface, this "
                       "program has %d: build it again",
                       td__tree_where(name).text, path, (unsigned)p->abi, TD_PLUGIN_ABI);
    fault = adopt(j, p, own);
    if (fault)
        return TD_FAIL(TD_EINVAL, "%s: plugin.files: %.400s: %s", td__tree_where(name).text, path,
                       fault);
    return TD_OK;
}

void td__plugins_close(td__job *j)
{
    for (int i = 0; i < j->n_plugins; i++)
        dlclose(j->plugins[i].handle);
    j->n_plugins = 0;
}

/* ---- Finding --------------------------------------------------------------------------------- */

#define FIND(kind, list, count)                                                   \
    const td_plugin_##kind *td__plugin_##kind(const td__job *j, const char *name) \
    {                                                                             \
        for (int i = 0; i < j->n_plugins; i++)                                    \
            for (int k = 0; k < j->plugins[i].at->count; k++)                     \
                if (!strcmp(j->plugins[i].at->list[k].name, name))                \
                    return &j->plugins[i].at->list[k];                            \
        return NULL;                                                              \
    }
FIND(layer, layers, n_layers)
FIND(loss, losses, n_losses)
FIND(metric, metrics, n_metrics)
FIND(map, maps, n_maps)
FIND(sync, syncs, n_syncs)

td_status td__plugin_missing(const td__job *j, const char *what, const td__tree *at)
{
    const td__tree *files = j->plugin.files;

    if (files && files->count && !j->n_plugins)
        return TD_FAIL(TD_EINVAL,
                       "%s: plugin: plug-ins are loaded only from a job file that is named on the "
                       "command line, not from the copy in a run: name the job file",
                       td__tree_where(at).text);
    return TD_FAIL(TD_EINVAL, "%s: %s: no plug-in has a %s %s%s", td__tree_where(at).text, what,
                   what, td__tree_found(at).text,
                   files && files->count ? "" : ": name its file in plugin.files");
}

/* ---- Map functions --------------------------------------------------------------------------- */

typedef struct map_state {
    const td_plugin_map *of;
    td_field in; /* names are m->in's */
} map_state;

static td_field public_field(const td__field *f)
{
    return (td_field){.name = f->name, .dtype = f->dtype, .shape = f->shape, .classes = f->classes};
}

static td_status map_open(td__map *m, td__dataset *train)
{
    const td_plugin_map *p = m->opts.user;
    map_state *s = m->state = td__calloc(1, sizeof *s);
    (void)train;

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for map stage '%s'", p->name);
    s->of = p;
    s->in = public_field(&m->in);
    td_field out = s->in;
    if (p->shape)
        TD_TRY(p->shape(&s->in, &out));
    if (out.shape.ndim < 0 || out.shape.ndim >= TD_MAX_DIMS || td_shape_count(&out.shape) < 0)
        return TD_FAIL(TD_EINVAL, "plugin.maps: %s gives samples of no valid shape", p->name);
    m->out.dtype = out.dtype;
    m->out.shape = out.shape;
    m->out.classes = out.classes;
    return TD_OK;
}

static void map_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                      const void *x, void *y)
{
    const map_state *s = m->state;
    size_t from = td__field_nbytes(&m->in), to = td__field_nbytes(&m->out);

    for (int64_t i = 0; i < n; i++) {
        const td_sample sample = {.index = index[i],
                                  .random = draw != NULL,
                                  .seed = draw ? draw->seed : 0,
                                  .epoch = draw ? draw->epoch : 0};
        s->of->apply(&s->in, &sample, (const char *)x + (size_t)i * from,
                     (char *)y + (size_t)i * to);
    }
}

static const td__map_def MAP = {.name = "plugin",
                                .help = "a map function of a plug-in",
                                .reads = "",
                                .draws = true,
                                .open = map_open,
                                .apply = map_apply};

/* plugin.maps stand behind data.maps. */
static td_status add_maps(td__job *j, const td__tree *names)
{
    int n = j->data.n_maps;
    td__map_opts *all = td__arena_alloc(j->arena, (size_t)(n + names->count) * sizeof *all);

    if (!all)
        return out_of_memory(j);
    if (n)
        memcpy(all, j->data.maps, (size_t)n * sizeof *all);
    for (const td__tree *t = names->first; t; t = t->next) {
        const td_plugin_map *p = td__plugin_map(j, t->text);
        if (!p)
            return td__plugin_missing(j, "map", t);
        all[n++] = (td__map_opts){.name = MAP.name, .def = &MAP, .user = p};
    }
    j->data.maps = all;
    j->data.n_maps = n;
    return TD_OK;
}

/* ---- The job --------------------------------------------------------------------------------- */

static td_status use_sync(td__job *j, const td__tree *name)
{
    const td_plugin_sync *p = td__plugin_sync(j, name->text);

    if (!p)
        return td__plugin_missing(j, "sync rule", name);
    if (j->train.sync.rule)
        return TD_FAIL(TD_EINVAL,
                       "%s: plugin.sync: not with train.sync (%s): leave one of them out",
                       td__tree_where(name).text, j->train.sync.rule);
    j->train.sync.plugin = p;
    j->train.sync.rule = "plugin";
    return TD_OK;
}

bool td__job_has_plugins(const td__job *j)
{
    return j->plugin.files && j->plugin.files->count;
}

td_status td__job_load_plugins(td__job *j, bool named)
{
    const td__tree *files = j->plugin.files, *maps = j->plugin.maps;

    for (const td__tree *t = named && files ? files->first : NULL; t; t = t->next)
        TD_TRY(load(j, t));
    if (maps && maps->count)
        TD_TRY(add_maps(j, maps));
    return j->plugin.sync ? use_sync(j, j->plugin.sync) : TD_OK;
}
