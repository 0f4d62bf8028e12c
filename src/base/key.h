/* key.h -- a key of a job as a row of a table: what it is called, which values it takes, which
 * member of a struct of options it fills.
 *
 * The rows are in job/keys.def and train/keys.def. The job layer checks, documents and reads values
 * by them (job/keys.h); the trainer compares the options of ranks by them (train/agree.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_KEY_H
#define TD_BASE_KEY_H

#include <stddef.h>

#include "tandem/types.h"

struct td__tree; /* job/tree.h */

/* A member of a struct as data: where it lies and what type it has. */
typedef enum td__option_type {
    TD_OPTION_NONE,
    TD_OPTION_BOOL,
    TD_OPTION_CHAR,
    TD_OPTION_INT,
    TD_OPTION_I64,
    TD_OPTION_U64, /* size_t too */
    TD_OPTION_REAL,
    TD_OPTION_TEXT,
    TD_OPTION_DTYPE,
    TD_OPTION_INTS, /* const int64_t *; how many there are is an int, `count` */
    TD_OPTION_TEXTS,
    TD_OPTION_TREE /* const td__tree *: as it stands, with its place */
} td__option_type;

typedef struct td__option {
    td__option_type type;
    size_t at;    /* bytes from the start of the struct */
    size_t count; /* of lists: where their length lies */
} td__option;

#define TD_OPTION_TYPE(x) \
    _Generic((x),                         \
        bool: TD_OPTION_BOOL,             \
        char: TD_OPTION_CHAR,             \
        int: TD_OPTION_INT,               \
        int64_t: TD_OPTION_I64,           \
        uint64_t: TD_OPTION_U64,          \
        double: TD_OPTION_REAL,           \
        const char *: TD_OPTION_TEXT,     \
        td_dtype: TD_OPTION_DTYPE,        \
        const int64_t *: TD_OPTION_INTS,  \
        const char *const *: TD_OPTION_TEXTS, \
        const struct td__tree *: TD_OPTION_TREE)

/* Initialisers, {TD_OPTION(td__train_opts, optim.lr)}; of a list with the member for its length. */
#define TD_OPTION(record, path) \
    .type = TD_OPTION_TYPE(((record *)NULL)->path), .at = offsetof(record, path)
#define TD_OPTION_LIST(record, path, n) TD_OPTION(record, path), .count = offsetof(record, n)

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
    /* The key was added when there were runs without it: at its default it is left out of the
     * digest, so that those runs can be resumed. */
    TD_KEY_LATER = 32,
    TD_KEY_NOT = 64, /* the member is true where the key is false */
    /* In the member 0 means "the default": a 0 that is given becomes TD_ZERO, in an int -1. */
    TD_KEY_ZERO = 128,
    TD_KEY_PAIR = 256, /* an INT that may be a list of two: for height and for width */
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
    td__option to;     /* what it fills */
    const char *none;  /* the text that is NULL in the member */
    double scale;      /* the member is the value times this; 0: the value */
    /* Its first name, if it was renamed: accepted with a warning, and its name in digests. The
     * section is the same. */
    const char *was;
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

/* The number that a text means: a whole number, or one of the words, "never=-1"; else 0. */
int64_t td__key_number(const td__key *k, const char *text);
/* The same of any number or truth value: true is 1. */
double td__key_real(const td__key *k, const char *text);
bool td__key_in_range(const td__key *k, double v);
/* What the row's member of `record` holds, as a job file would say it, in `buf`; returns buf. */
char *td__key_text(const td__key *k, const void *record, char *buf, size_t nbytes);

/* A whole number as the text says it. */
bool td__parse_int(const char *text, int64_t *out);
/* The shortest text that reads back as v. */
void td__real_text(double v, char *buf, size_t nbytes);

/* Is `word` one of the words, which are separated by spaces? */
bool td__has_word(const char *words, const char *word);

#endif
