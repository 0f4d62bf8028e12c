/* isa.h -- one source, several instruction sets, for this folder's kernels: see base/isa.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_ISA_H
#define TD_BACKEND_CPU_ISA_H

#include "base/isa.h"

#endif
