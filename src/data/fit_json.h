/* fit_json.h -- the inside of a fit (fit.h), for sources and stages that write and read theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_FIT_JSON_H
#define TD_DATA_FIT_JSON_H

#include <jansson.h>

#include "base/alloc.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/fit.h"

struct td__fit {
    json_t *root;
    char where[256];
};

/* TD_EPROTO: the text says `what` that cannot be. */
td_status td__fit_bad(const td__fit *f, const char *what);
/* What the source measured; NULL: nothing. */
const json_t *td__fit_measured(const td__fit *f);
/* What stage i measured, which has this name; NULL: it is not that stage. */
const json_t *td__fit_map(const td__fit *f, int i, const char *name);
/* The fields that samples have before the stages; texts in the arena. */
TD_NODISCARD td_status td__fit_fields(const td__fit *f, td__arena *a, td__field out[TD__MAX_FIELDS],
                                      int *n);
/* TD_EINVAL if samples with these fields are not such as the fit was made of. */
TD_NODISCARD td_status td__fit_check_fields(const td__fit *f, const td__dataset *d);
json_t *td__fit_save_fields(const td__dataset *d);

/* A text as JSON: a string, or where it is not UTF-8 {"hex": "..."}. NULL: out of memory. */
json_t *td__fit_save_text(const char *text, size_t nbytes);
/* And back: ended by a 0, in the arena. NULL: it is not one, or out of memory. */
const char *td__fit_load_text(const json_t *v, td__arena *a, size_t *nbytes);
json_t *td__fit_save_numbers(const double *x, int64_t n);
/* n finite numbers; false: it is not that. */
bool td__fit_load_numbers(const json_t *v, double *x, int64_t n);

/* JSON as text, numbers with all their digits. */
TD_NODISCARD td_status td__fit_dump(const json_t *root, td__text *out);

#endif
