/* layer.h -- what a layer of a job is: one td__layer_def beside its builder, and one line in
 * layers.def (ready-made models: models.def). Key table, help and tests come from the def. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_LAYER_H
#define TD_JOB_LAYER_H

#include "job/job_impl.h"
#include "tandem/nn.h"

typedef struct td__build td__build; /* a model in the making: build.c */

/* One layer in the making. */
typedef struct td__layer {
    td__build *b;
    td_graph *g;
    td__arena *arena;
    const char *name;      /* of its params: "conv2d1" */
    const char *path;      /* in the job: "model.layers.2" */
    const td__tree *attrs; /* resolved */
    const td__key *keys;
} td__layer;

enum { TD__LAYER_KEYS = 16 };

typedef struct td__layer_def {
    const char *name, *help;
    /* The first key is the one that `name: value` gives. */
    td__key keys[TD__LAYER_KEYS];
    /* x is (rows, ...). NULL on failure, which is the graph's or td__layer_fail's. */
    td_node *(*build)(const td__layer *l, td_node *x);
} td__layer_def;

/* Sizes that the data decides: `classes` is the number of classes of the target (or of its numbers,
 * where it is no class), `vocab` the number of different ids of the input. */
enum { TD__SIZE_CLASSES = -1, TD__SIZE_VOCAB = -2, TD__SIZE_DATA = -3 };
#define TD_KEY_CLASSES(key, text) \
    TD_KEY_ROW(key, INT, text, .lo = 1, .hi = 1e12, .words = "classes=-1", .def = "classes")
#define TD_KEY_VOCAB(key, text) \
    TD_KEY_ROW(key, INT, text, .lo = 1, .hi = 1e12, .words = "vocab=-2", .def = "vocab")
#define TD_KEY_ACT \
    TD_KEY_ROW("act", WORD, "Activation afterwards.", .list = td__act_word, .def = "none")
#define TD_KEY_DROPOUT                                                                   \
    TD_KEY_ROW("dropout", REAL, "Probability of an element to be set to zero.", .hi = 1, \
               .flags = TD_KEY_BELOW, .def = "0")

/* Reading attributes. size: with words like `classes` worked out; 0 after a failure. */
int64_t td__layer_int(const td__layer *l, const char *key);
int64_t td__layer_size(const td__layer *l, const char *key);
/* A number for both axes, or one for each. */
void td__layer_pair(const td__layer *l, const char *key, int out[2]);
double td__layer_real(const td__layer *l, const char *key);
bool td__layer_bool(const td__layer *l, const char *key);

/* A failure at the layer's place in the file; returns NULL. */
td_node *td__layer_fail(const td__layer *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The value that an earlier `as: NAME` tapped, or a data field. */
td_node *td__layer_tap(const td__layer *l, const td__tree *name);
/* The data field that x is; NULL: it is computed. */
const td__field *td__layer_field(const td__layer *l, const td_node *x);
/* A list of layers inside this one; their names start with "prefix.". */
td_node *td__layer_inner(const td__layer *l, const char *key, const char *prefix, td_node *x);

/* Activations by name. fused: what a layer can do itself (TD_ACT_NONE where it cannot). */
const char *td__act_word(int i);
td_node *td__act_apply(td_graph *g, const char *name, td_node *x);
td_act td__act_fused(const char *name);

const td__layer_def *td__layer_find(const char *name);
int td__layer_kind(const td__layer_def *d); /* its line in layers.def, from 0 */
const td__layer_def *td__layer_list(int i);
const td__layer_def *td__ready_find(const char *name);
const td__layer_def *td__ready_list(int i);
/* Keys that all layers have: as, from, name. */
extern const td__key td__layer_common[];

enum {
#define TD_LAYER(name) TD__LAYER_KIND_##name,
#include "job/layers.def"
#undef TD_LAYER
    TD__LAYER_KINDS
};

#define TD_LAYER(name) extern const td__layer_def td__layer_##name;
#include "job/layers.def"
#undef TD_LAYER
#define TD_MODEL(name) extern const td__layer_def td__ready_##name;
#include "job/models.def"
#undef TD_MODEL

#endif
