/* sources.h -- data sources (data/source.h) by name, on small files that a test makes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_SOURCES_H
#define TD_TESTS_SUPPORT_SOURCES_H

#include "data/source.h"

td_status source_open(const char *source, const td__source_opts *o, const char *part,
                      td__dataset **d);
/* Opening must fail with this status, and one line that has this text. */
void source_refused(const char *source, const td__source_opts *o, const char *part, td_status want,
                    const char *text);
/* Sample i of all fields, in buffers that the next call uses again. */
void *const *source_read(td__dataset *d, int64_t i);

/* Files in check_tmpdir. */
void source_write_text(const char *name, const char *text);
void source_write_gz(const char *name, const void *data, size_t nbytes);

#endif
