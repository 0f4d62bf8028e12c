/* keys.h -- tables of keys, and the check of a tree against one.
 *
 * A key is one row: path, type, range, default, help. The rows of the job itself are in keys.def,
 * those of layers beside their builders (layer.h), those of ready-made models beside theirs
 * (ready.h); all are checked, resolved, documented and read by the functions below.
 *
 * Resolving makes a new map that holds the keys in the order of the table, defaults filled in and
 * scalars in one canonical spelling, so that equal jobs are equal texts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_KEYS_H
#define TD_JOB_KEYS_H

#include "job/tree.h"

typedef enum td__key_type {
    TD_KEY_INT,   /* within [lo, hi], or one of `words`, "epoch=0 never=-1" */
    TD_KEY_REAL,  /* within [lo, hi] */
    TD_KEY_BOOL,  /* */
    TD_KEY_TEXT,  /* */
    TD_KEY_WORD,  /* one of `words` or of `list` */
    TD_KEY_INTS,  /* a list of whole numbers, or one */
    TD_KEY_TEXTS, /* a list of texts, or one */
    TD_KEY_WORDS, /* a list of words, or one */
    TD_KEY_TREE,  /* checked by its own code: the model, layers, map stages */
} td__key_type;

enum {
    TD_KEY_REQUIRED = 1,
    TD_KEY_MAIN = 2,  /* `loss: mse` means `loss: {name: mse}`: the section's scalar */
    TD_KEY_ABOVE = 4, /* lo itself is not allowed */
    TD_KEY_BELOW = 8, /* hi itself is not allowed */
    TD_KEY_FREE = 16, /* does not decide the numbers: left out of the job's digest */
};

typedef struct td__key {
    const char *path;
    td__key_type type;
    const char *help;
    double lo, hi;     /* hi 0: no end */
    const char *def;   /* the default as YAML; NULL: none, the key is left out */
    const char *words; /* separated by spaces */
    const char *(*list)(int i);
    unsigned flags;
    const char *shown; /* the default in words, where def does not say it */
} td__key;

/* path, type, help, then what else there is: TD_KEY_ROW("p", REAL, "Share.", .hi = 1) */
#define TD_KEY_ROW(key, kind, ...)                                \
    {                                                             \
        .path = (key), .type = TD_KEY_##kind, .help = __VA_ARGS__ \
    }
#define TD_KEYS_END  \
    {                \
        .path = NULL \
    }

/* `given`: a map or NULL. prefix stands before the keys in texts: "model.layers.2.". `at` is where
 * to point for what is missing. Tables end with a path of NULL. */
TD_NODISCARD td_status td__keys_resolve(td__arena *a, const td__key *keys, const char *prefix,
                                        const td__tree *given, const td__tree *at, td__tree **out);

/* "a whole number of at least 1" into buf; returns buf. */
char *td__key_expected(const td__key *k, char *buf, size_t nbytes);

/* Values of a resolved map; zero, false or NULL where the key is not there. */
td__tree *td__keys_node(const td__tree *map, const char *path);
int64_t td__keys_int(const td__key *keys, const td__tree *map, const char *path);
double td__keys_real(const td__tree *map, const char *path);
bool td__keys_bool(const td__tree *map, const char *path);
const char *td__keys_text(const td__tree *map, const char *path);
/* Lists: the number of items; items into the arena. -1 when out of memory. */
int td__keys_ints(td__arena *a, const td__tree *map, const char *path, const int64_t **out);
int td__keys_texts(td__arena *a, const td__tree *map, const char *path, const char *const **out);

/* Is `word` one of the words, which are separated by spaces? */
bool td__has_word(const char *words, const char *word);

/* A whole number as the text says it. */
bool td__parse_int(const char *text, int64_t *out);

#endif
