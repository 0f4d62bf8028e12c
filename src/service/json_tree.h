/* json_tree.h -- JSON as the tree that tables of keys check (job/tree.h, job/keys.h), so that
 * requests and files have one checker. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_JSON_TREE_H
#define TD_SERVICE_JSON_TREE_H

#include "job/tree.h"

/* JSON if it begins with a brace, else YAML. */
TD_NODISCARD td_status td__json_or_yaml(td__arena *a, const char *text, size_t nbytes,
                                        const char *source, td__tree **out);

#endif
