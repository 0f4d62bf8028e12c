/* keys.h -- tables of keys, and the check of a tree against one.
 *
 * A key is one row: path, type, range, default, help, and the member of a struct that it fills. The
 * rows of the job itself are in keys.def, those of layers next to their builders (layer.h), those
 * of ready-made models next to theirs (ready.h); all are checked, resolved, documented and read by
 * the functions below.
 *
 * Resolving makes a new map that holds the keys in the order of the table, defaults filled in and
 * scalars in one canonical spelling, so that equal jobs are equal texts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_KEYS_H
#define TD_JOB_KEYS_H

#include "base/key.h"
#include "job/tree.h"

/* `given`: a map or NULL. prefix stands before the keys in texts: "model.layers.2.". `at` is where
 * to point for what is missing. Tables end with a path of NULL. */
TD_NODISCARD td_status td__keys_resolve(td__arena *a, const td__key *keys, const char *prefix,
                                        const td__tree *given, const td__tree *at, td__tree **out);

/* The row of that path; NULL if there is none. */
const td__key *td__keys_find(const td__key *keys, const char *path);

/* "a whole number of at least 1" into buf; returns buf. */
char *td__key_expected(const td__key *k, char *buf, size_t nbytes);

/* Values of a resolved map; zero, false or NULL where the key is not there. */
td__tree *td__keys_node(const td__tree *map, const char *path);
int64_t td__keys_int(const td__key *keys, const td__tree *map, const char *path);
double td__keys_real(const td__tree *map, const char *path);
bool td__keys_bool(const td__tree *map, const char *path);
const char *td__keys_text(const td__tree *map, const char *path);
/* A list: the number of items; items into the arena. -1 when out of memory. */
int td__keys_ints(td__arena *a, const td__tree *map, const char *path, const int64_t **out);
int td__keys_texts(td__arena *a, const td__tree *map, const char *path, const char *const **out);

/* The value t of the row k into its member of `record`; texts and lists lie in the arena. */
TD_NODISCARD td_status td__key_fill(td__arena *a, const td__key *k, const td__tree *t,
                                    void *record);

/* The table for people: as text, or as a table of Markdown. */
void td__help_keys(FILE *to, const td__key *keys, bool markdown);

/* Our names for what other tools call `word` (synonyms.def), one per call: *at, 0 at first, goes
 * through them. NULL after the last. */
const char *td__synonym(const char *word, int *at);

#endif
