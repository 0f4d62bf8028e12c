/* map.h -- map stages: each changes one field of every sample. One td__map_def in one file
 * (map_*.c) and one line in maps.def.
 *
 * A stage is opened once, on the train part (normalize measures there), and then stands over every
 * part as a view (td__map_view). A filter is a stage that has keep() instead of apply(): the part
 * is then the subset of the samples that it keeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_MAP_H
#define TD_DATA_MAP_H

#include "base/rng.h"
#include "data/data.h"

typedef struct td__map td__map;

typedef struct td__map_def td__map_def;
struct td__map_def {
    const char *name;
    const char *help;  /* one line */
    const char *reads; /* members of td__map_opts it takes, besides field: "size size2 pad" */
    bool draws;        /* random under a td__draw; left out in evaluation, where draw is NULL */
    /* Look at m->in and m->opts; set m->out (a copy of m->in at first) and m->state. */
    td_status (*open)(td__map *m, td__dataset *train);
    /* Stages that measure train: what they found, as JSON, and open() by that instead; `where` is
     * for td__fit_bad. NULL: they measure nothing, and open() only looks at the fields. */
    struct json_t *(*save)(const td__map *m);
    td_status (*open_fitted)(td__map *m, const td__fit *where, const struct json_t *from);
    void (*close)(td__map *m); /* NULL: state is plain memory */
    /* n values x of m->in into n values y of m->out. */
    void (*apply)(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                  const void *x, void *y);
    /* Filters: keep[i] = whether to keep the sample with value i of x. */
    void (*keep)(const td__map *m, int64_t n, const void *x, bool *keep);
};

struct td__map {
    const td__map_def *def;
    td__map_opts opts;
    int stage; /* its place in the list: key of what it draws */
    int field; /* that it changes */
    td__field in, out;
    void *state; /* freed with td__free after close */
};

const td__map_def *td__map_find(const char *name); /* NULL if there is none */
const td__map_def *td__map_list(int i);            /* NULL after the last */

/* fit: what was measured before, on samples with the fields of `train`; NULL: measure train. */
TD_NODISCARD td_status td__map_open(const td__map_opts *o, int stage, td__dataset *train,
                                    const td__fit *fit, td__map **out);
void td__map_close(td__map *m); /* NULL is allowed */

/* The samples of base after the stage. base and m must outlive the view. */
TD_NODISCARD td_status td__map_view(const td__map *m, td__dataset *base, td__dataset **out);

/* Calls see() with the values x of one field, in order: samples begin .. begin + n - 1, or of
 * `most` at most, which are then spread evenly over all (sample k n / most). Stops at the first
 * failure. */
typedef td_status (*td__see)(void *context, int64_t begin, int64_t n, const void *x);
TD_NODISCARD td_status td__map_walk(td__dataset *d, int field, int64_t most, td__see see,
                                    void *context);
/* A value of any integer or floating type but bf16 and f16. */
double td__element(const void *x, td_dtype dtype, int64_t i);

/* The random stream of one sample in this stage. */
td__rng_key td__map_key(const td__map *m, const td__draw *draw, int64_t index);

#define TD_MAP(name) extern const td__map_def td__map_##name;
#include "data/maps.def"
#undef TD_MAP

#endif
