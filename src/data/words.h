/* words.h -- words of texts as numbers: kept by frequency, 0 is padding, 1 every other word.
 *
 * A word is a run of letters, digits, apostrophes and bytes above 127, in lower case. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_WORDS_H
#define TD_DATA_WORDS_H

#include "base/alloc.h"
#include "tandem/status.h"

enum { TD__WORD_PAD = 0, TD__WORD_UNKNOWN = 1, TD__WORD_FIRST = 2 };

typedef struct td__words td__words;

TD_NODISCARD td_status td__words_create(td__words **out);
void td__words_destroy(td__words *w); /* NULL is allowed */
/* Count the words of a text. */
TD_NODISCARD td_status td__words_add(td__words *w, const char *text, size_t nbytes);
/* Keep the most frequent; ties in the order of bytes. `vocab` counts 0 and 1 too; 0: keep all. */
TD_NODISCARD td_status td__words_rank(td__words *w, int64_t vocab);
/* After rank: one more word, with the next number; *ok false: it cannot be one, or is there. */
TD_NODISCARD td_status td__words_append(td__words *w, const char *word, bool *ok);
int64_t td__words_count(const td__words *w); /* after rank: numbers in use */
/* The text as numbers, cut or padded to n. */
void td__words_encode(const td__words *w, const char *text, size_t nbytes, int32_t *out, int64_t n);
/* The words by number, copied to the arena. */
TD_NODISCARD td_status td__words_names(const td__words *w, td__arena *arena,
                                       const char *const **out);

#endif
