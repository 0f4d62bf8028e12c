/* golden_json.h -- expected values that other programs wrote as JSON (tests/golden). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_GOLDEN_JSON_H
#define TD_TESTS_SUPPORT_GOLDEN_JSON_H

#include <jansson.h>
#include <stdint.h>

/* A whole file; the caller's to json_decref. */
json_t *golden_json(const char *path);
/* A member, which must be there. */
const json_t *golden_get(const json_t *object, const char *key);
const char *golden_text(const json_t *object, const char *key);
/* Numbers; null is NaN. */
double golden_real(const json_t *object, const char *key);
int64_t golden_int(const json_t *object, const char *key);
/* A list of numbers: at most `most`; returns how many. */
int64_t golden_list(const json_t *object, const char *key, double *out, int64_t most);

#endif
