/* tree.h -- a YAML document as a tree that remembers where everything stood.
 *
 * Only what a job needs: one document of maps with scalar keys, lists and scalars. Anchors,
 * aliases and tags are refused, sizes and depth are bounded, a key given twice is an error. Scalars
 * stay texts: what they mean is decided by the key they belong to (keys.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_TREE_H
#define TD_JOB_TREE_H

#include <stdio.h>

#include "base/alloc.h"

enum {
    TD__TREE_MAX_BYTES = 1 << 20,
    TD__TREE_MAX_NODES = 100000,
    TD__TREE_MAX_KEYS = 1000, /* of one map */
    TD__TREE_MAX_DEPTH = 24
};

typedef enum td__tree_kind {
    TD_TREE_NULL,
    TD_TREE_SCALAR,
    TD_TREE_LIST,
    TD_TREE_MAP
} td__tree_kind;

typedef struct td__tree td__tree;
struct td__tree {
    td__tree_kind kind;
    const char *text; /* scalar */
    const char *key;  /* within a map; NULL otherwise */
    td__tree *first, *last, *next;
    int count;          /* children */
    const char *source; /* "digits.yaml", or "--set train.batch=-3" and then line is 0 */
    int line, column;   /* of the value; where there is none, of the key */
    int key_line, key_column;
    const char *digest_key; /* the key in digests; NULL: `key`; "": left out */
};

/* Parse text[0..nbytes) into the arena. An empty document is a TD_TREE_NULL node. TD_EINVAL with
 * "source:line:column: what" for what is not YAML or not ours. `line` 0 (an override): positions
 * are left out. */
TD_NODISCARD td_status td__tree_parse(td__arena *a, const char *text, size_t nbytes,
                                      const char *source, bool positions, td__tree **out);

/* Nodes at the same place as `where`, which may be NULL. NULL when out of memory. */
td__tree *td__tree_new(td__arena *a, td__tree_kind kind, const td__tree *where);
td__tree *td__tree_scalar(td__arena *a, const char *text, const td__tree *where);

/* A map's child, NULL if there is none; a list's child by number. */
td__tree *td__tree_get(const td__tree *map, const char *key);
td__tree *td__tree_at(const td__tree *list, int i);
/* Append a child; key (copied by the caller into the arena) is NULL for lists. */
void td__tree_append(td__tree *parent, const char *key, td__tree *child);
/* Put `child` in the place of the child of that key, or append it. */
void td__tree_put(td__tree *map, const char *key, td__tree *child);
/* Put `child` in the place of the list's or map's child `old`. */
void td__tree_replace(td__tree *parent, const td__tree *old, td__tree *child);
/* The same where the one before it is known, NULL for none: no search. */
void td__tree_replace_after(td__tree *parent, td__tree *before, td__tree *child);
void td__tree_remove(td__tree *parent, const td__tree *child);

/* An override, "path.to.key=value", in its parts; texts name it as "--set path.to.key=value". */
TD_NODISCARD td_status td__tree_parse_set(td__arena *a, const char *set, char **path,
                                          td__tree **value);
/* Put `value` at that path below t, a map or a list; maps on the way are made. */
TD_NODISCARD td_status td__tree_set(td__arena *a, td__tree *t, const char *path, td__tree *value);

/* "digits.yaml:12:5" or "--set train.batch=-3", by value, to be used within the expression. */
typedef struct td__tree_place {
    char text[256];
} td__tree_place;
td__tree_place td__tree_where(const td__tree *t);
td__tree_place td__tree_where_key(const td__tree *t);
/* What stands there, for "found ...": the scalar's text (shortened), "a list", "a map", "nothing".
 */
td__tree_place td__tree_found(const td__tree *t);

/* As YAML: block maps, and one line for what lies in a list and has no lists of maps itself. */
TD_NODISCARD td_status td__tree_write(const td__tree *map, FILE *to);

#endif
