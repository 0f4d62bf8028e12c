/* fit.h -- what was measured on the training part and decides how every sample is read: categories,
 * classes, vocabularies, means. A checkpoint holds it as JSON (preprocessing.json), so that new
 * samples are treated as those of training were, without the training data:
 *
 *     {"format": "tandem preprocessing", "version": 1,
 *      "source": "csv",
 *      "parts": {"train": {"count": 150, "whole": true, "sha256": "..."}, ...},
 *      "fields": [{"name": "y", "dtype": "i32", "shape": [], "classes": 3, "names": [...]}, ...],
 *      "measured": {...},           what the source measured besides the fields
 *      "maps": [{"map": "normalize", "mean": [...], "std": [...]}, ...]}
 *
 * Numbers are written so that they are read back with the same bits. "parts" tells whether the data
 * have changed since (digest/data_digest.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_FIT_H
#define TD_DATA_FIT_H

#include "tandem/status.h"

typedef struct td__fit td__fit;

/* `where` names the text in errors. TD_EPROTO if it is not of this form. */
TD_NODISCARD td_status td__fit_parse(const char *text, size_t nbytes, const char *where,
                                     td__fit **out);
void td__fit_destroy(td__fit *f); /* NULL is allowed */

#endif
