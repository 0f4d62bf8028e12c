/* hostile.h -- tests with broken files and broken allocators. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_HOSTILE_H
#define TD_TESTS_SUPPORT_HOSTILE_H

#include "support/check.h"

/* Give `read` a good file (which it must accept) cut at every byte (which it must refuse), then
 * with every bit of its first `flip_bytes` flipped in turn (which it may accept, and must survive).
 * The files are written to `path`. Memory must not leak. */
void check_hostile_file(td_status (*read)(const char *path), const char *path, const void *good,
                        size_t nbytes, size_t flip_bytes);

/* Call `work` with the first, second, third, ... allocation failing until it succeeds: it must
 * answer TD_ENOMEM and leave nothing behind each time. */
void check_every_allocation(td_status (*work)(void *arg), void *arg);

#endif
