/* secret_file.h -- a file, for its owner alone (mode 0600), that says where somebody listens and
 * has the secret that it takes to be heard. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_SECRET_FILE_H
#define TD_COLL_SECRET_FILE_H

#include "coll/comm_setup.h"
#include "net/socket.h"

/* Whole or not at all, in the place of what is there. */
TD_NODISCARD td_status td__secret_file_write(const char *path, const char *address,
                                             const td__secret *secret);
/* TD_EINVAL if there is none, or it is something else. */
TD_NODISCARD td_status td__secret_file_read(const char *path, char address[TD_ADDRESS_BYTES],
                                            td__secret *secret);

#endif
