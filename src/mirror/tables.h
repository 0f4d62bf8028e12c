/* tables.h -- tables on parameter servers in remote storage (mirror.h): their rows lie in files
 * beside the checkpoints, RUN/checkpoints/tables/NAME.STEP.all and .delta (ps/table_files.c), of
 * which a checkpoint needs those of its step, and of each server the ones before it, back to one
 * with all rows. URL/ holds
 *
 *     tables/NAME.STEP.delta-VERSION     such a file, sent once for all checkpoints that need it
 *     step-00000100/tables.json          the files of a checkpoint: object and sha256 of each
 *
 * tables.json is sent before state.json, and goes after it; then go the objects that no other
 * checkpoint needs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_MIRROR_TABLES_H
#define TD_MIRROR_TABLES_H

#include <jansson.h>

#include "base/text.h"

#define TD__TABLES_FOLDER "tables"
#define TD__TABLES_FILE "tables.json"
#define TD__TABLES_BESIDE ".tables" /* in the spool: links to the files, beside the checkpoint */
enum { TD__TABLES_JSON_MAX = 16 << 20 };

/* The names of the files that the checkpoint of this step needs of those in `folder`, an array; an
 * empty one if there are none, or no folder. */
TD_NODISCARD td_status td__tables_needed(const char *folder, uint64_t step, json_t **out);
/* `files` of a tables.json: {NAME: {"object": ..., "sha256": ...}}; what is no such file: TD_EPROTO
 * that names `where`. */
TD_NODISCARD td_status td__tables_parse(const char *text, size_t nbytes, const char *where,
                                        json_t **files);
#endif
