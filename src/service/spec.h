/* spec.h -- reading and writing the spec of a job.
 *
 * spec.def has a row for each key (base/key.h): path, type, range, default, help, member. A spec
 * comes as YAML or JSON text (`tandem submit`, HTTP bodies) or is filled in C (gRPC) and then
 * checked; the store keeps it as JSON. The book's spellings are taken too: outputModelName is
 * output_model_name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SPEC_H
#define TD_SERVICE_SPEC_H

#include "base/key.h"
#include "base/text.h"
#include "service/job.h"

extern const td__key td__spec_keys[]; /* ends with a path of NULL */

/* An empty spec with every default. */
TD_NODISCARD td_status td__spec_create(td__job_spec **out);
void td__spec_destroy(td__job_spec *s); /* NULL is allowed */

/* From text, YAML or JSON; `source` stands for it in error texts: "request". */
TD_NODISCARD td_status td__spec_parse(const char *text, size_t nbytes, const char *source,
                                      td__job_spec **out);
/* From what td__spec_json wrote: no checks. defaults: of td__spec_create, borrowed for the life of
 * the spec. */
TD_NODISCARD td_status td__spec_load(const char *json, const td__job_spec *defaults,
                                     td__job_spec **out);
/* As one JSON object. Keys at their defaults are left out. */
void td__spec_json(const td__job_spec *s, td__text *out);
/* The same without values that may be secrets: env, and parameters whose names say so. */
void td__spec_json_public(const td__job_spec *s, td__text *out);

/* For specs that are filled in C: texts and pairs into the spec's arena. */
const char *td__spec_text(td__job_spec *s, const char *text);
TD_NODISCARD td_status td__spec_pairs(td__job_spec *s, const td__pair *pairs, int n,
                                      td__pairs *out);

/* A zeroed spec with an arena, and the member of a key that is a map of texts; NULL: it is none. */
TD_NODISCARD td_status td__spec_allocate(td__job_spec **out);
td__pairs *td__spec_map(td__job_spec *s, const char *path);

/* Is the value of a variable of this name hidden in lists and logs? "MINIO_SECRET_KEY", "TOKEN". */
bool td__secret_name(const char *name);

#endif
