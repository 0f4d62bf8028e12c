/* lazy_load.h -- libraries that are loaded when they are first called (cmake/lazy.cmake). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_CMD_LAZY_LOAD_H
#define TANDEM_CMD_LAZY_LOAD_H

#include <stdint.h>

/* For the stubs: loads the library, fills the slot of the function, and returns where it is. From
 * any thread. entry: distances in bytes from itself to the slot and to the function's name. A
 * library that is not there ends the program with one line and status 2, as the system's loader
 * does for those that it loads. */
void *td__lazy_find(const int32_t *entry, const char *library);

#endif
