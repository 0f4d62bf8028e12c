/* bundle.h -- the files of a directory in remote storage (remote/remote.h), whole or not at all:
 * URL/NAME each, and last URL/MANIFEST with "SHA256 BYTES NAME" in each line (artifact_list.h), by
 * which they are checked when they are fetched. Without it there is no bundle.
 *
 * A state that is saved again and again lies in URL/save-N; URL/latest has the name of the last one
 * that is whole, which stays until the next one is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_BUNDLE_H
#define TD_SERVICE_TRACK_BUNDLE_H

#include "remote/remote.h"

/* list: a file of td__artifact_list_write for this directory. stop, asked before each file: true:
 * TD_EABORTED; NULL: none. */
TD_NODISCARD td_status td__bundle_send(td__remote *r, const char *dir, const char *list,
                                       const char *url, bool (*stop)(void *arg), void *arg,
                                       td__deadline until);

/* number: of the save, from 1. What could not be loaded again, such as a link, is an error. */
TD_NODISCARD td_status td__bundle_save(td__remote *r, const char *dir, const char *url,
                                       int64_t *number, td__deadline until);
/* number 0: nothing was saved there yet, and nothing was done. */
TD_NODISCARD td_status td__bundle_load(td__remote *r, const char *url, const char *dir,
                                       int64_t *number, td__deadline until);

#endif
