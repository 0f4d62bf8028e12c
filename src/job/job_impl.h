/* job_impl.h -- the inside of td__job, shared by the files of this layer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_JOB_IMPL_H
#define TD_JOB_JOB_IMPL_H

#include "base/file.h"
#include "job/job.h"
#include "job/keys.h"
#include "parallel/distribute/distribute.h"
#include "tandem/train.h"

typedef struct td__renamed td__renamed;
struct td__renamed {
    const char *text;
    td__renamed *next;
};

enum { TD__MAX_PLUGINS = 8 };

struct td__job {
    const char *from; /* model.from with its folder; NULL: none */
    td__job_from_opts from_opts;
    const char *const *freeze; /* model.freeze; used: which of them matched a param */
    bool *freeze_used;
    int n_freeze;
    td__arena *arena;
    const char *file;
    td__renamed *renamed; /* keys that were given by their old names, the last one first */
    td__tree *root;       /* resolved; every value canonical */
    /* What rows of keys.def fill, with the structs below. */
    const char *name;
    const td__tree *model, *maps, *features, *metrics, *sync;
    struct {
        const char *name, *target;
        td_loss_opts opts;
        const td__tree *class_weights;
    } loss;
    struct {
        const td__tree *files, *loss, *metrics, *maps, *sync;
    } plugin;
    td__data_opts data;
    td__train_opts train;
    td__job_log log;
    td__job_hooks hooks;
    td__job_parallel parallel;
    struct {
        void *handle;
        const struct td_plugin *at;
    } plugins[TD__MAX_PLUGINS]; /* that are loaded */
    int n_plugins;
    /* After td__job_model: */
    td__arena *model_arena;
    td__field fields[TD__MAX_FIELDS];
    int n_fields;
    td__model_lookup lookup; /* of tables on servers */
    const char *hint;        /* what is probably not meant so; NULL: nothing */
    int places;              /* that layers name: 0 to this one; -1: none */
    td__layer_row *rows;
    int n_rows, cap_rows;
};

void td__plugins_close(td__job *j);

/* warm.c: model.freeze, fresh and rename, from the resolved job. */
TD_NODISCARD td_status td__job_read_warm(td__job *j);

/* overrides.c: a tree as given, with today's names of keys and in its full form (`optimizer: adam`
 * is a map with a name); with one override applied. */
TD_NODISCARD td_status td__job_expand(td__job *j, td__tree *root);
TD_NODISCARD td_status td__job_override(td__job *j, td__tree *root, const char *set);

/* The table of keys.def, ends with a path of NULL. */
extern const td__key td__job_keys[];

/* Words of choices that come from other tables; NULL after the last. */
const char *td__loss_word(int i);
const char *td__metric_word(int i);
const char *td__source_word(int i);
const char *td__processor_word(int i);

/* An item of a list of layers or stages in full: {kind: name, ...}. Taken are `name`, `name: main`,
 * `{name: main, more: ...}` and the full form; main_key(name) is the key of the value beside the
 * name, NULL for an unknown name. */
TD_NODISCARD td_status td__item_expand(td__arena *a, const char *kind,
                                       const char *(*main_key)(const char *name), const char *path,
                                       const td__tree *item, td__tree **out);

/* The items of a list, each in full, in place; resolved, each by `one`. */
TD_NODISCARD td_status td__items_expand(td__arena *a, const char *kind,
                                        const char *(*main_key)(const char *name), const char *path,
                                        td__tree *list);
typedef td_status td__item_resolve(td__arena *a, const td__tree *given, const char *path,
                                   td__tree **out);
TD_NODISCARD td_status td__items_resolve(td__arena *a, const char *path, td__item_resolve *one,
                                         const td__tree *given, td__tree **out);

/* All items of a list in full, in place, so that overrides find their keys. */
TD_NODISCARD td_status td__layers_expand(td__arena *a, const char *path, td__tree *list);
TD_NODISCARD td_status td__stages_expand(td__arena *a, td__tree *list);

/* data.maps -> resolved, and as the data layer wants it. */
TD_NODISCARD td_status td__stages_resolve(td__arena *a, const td__tree *given, td__tree **out);
TD_NODISCARD td_status td__stages_fill(td__arena *a, const td__tree *list,
                                       const td__map_opts **maps, int *n);
/* The same for data.features. */
TD_NODISCARD td_status td__features_expand(td__arena *a, td__tree *list);
TD_NODISCARD td_status td__features_resolve(td__arena *a, const td__tree *given, td__tree **out);
TD_NODISCARD td_status td__features_fill(td__arena *a, const td__tree *list,
                                         const td_feature **features, int *n);
/* parallel.strategy: the keys that it stands for. */
TD_NODISCARD td_status td__strategy_expand(td__arena *a, td__tree *given);
/* A key of a section of the job gets a value unless it has one. */
TD_NODISCARD td_status td__job_default(td__arena *a, td__tree *given, const char *section,
                                       const char *key, const char *value, const td__tree *where);
/* Layers that are placed on GPUs: the keys that they need. */
TD_NODISCARD td_status td__place_devices_expand(td__arena *a, td__tree *given);
/* train.sync in full, {rule: name, ...}; resolved; as the trainer wants it. */
TD_NODISCARD td_status td__sync_key_expand(td__arena *a, td__tree *train);
TD_NODISCARD td_status td__sync_key_resolve(td__arena *a, td__tree *train);
TD_NODISCARD td_status td__sync_key_fill(td__job *j);
/* model -> resolved (symbolic: `classes` stays a word). */
TD_NODISCARD td_status td__model_resolve(td__arena *a, const td__tree *given,
                                         const td__tree *define, td__tree **out);

/* Parts of `tandem help job` that lie beside their tables. */
void td__help_stages(FILE *to, bool markdown);
void td__help_features(FILE *to, bool markdown);
void td__help_sync(FILE *to, bool markdown);

#endif
