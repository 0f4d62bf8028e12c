/* module.h -- parts of the program that need a library which is not everywhere: shared objects,
 * loaded when they are asked for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_MODULE_H
#define TD_BASE_MODULE_H

#include "tandem/status.h"

/* Load `file`, "libtandem_x.so", from the folder TANDEM_MODULES, from that of this program or
 * library, or from where it is installed beside it, and find its function `entry`. It is never
 * unloaded: what such libraries start does not survive that. TD_ENOTSUP: there is none. */
TD_NODISCARD td_status td__module_open(const char *file, const char *entry, void **out);

#endif
