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

/* Load a library of CUDA, the first of n names that is in a folder of TANDEM_CUDA_LIBS, on the
 * loader's path or in /usr/local/cuda. NULL: there is none, or TANDEM_CUDA_LIBS is "none". */
void *td__module_cuda(const char *const *names, int n);

#endif
