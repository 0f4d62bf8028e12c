/* winograd.c -- the Winograd transforms for each instruction set; see winograd.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/winograd_impl.h"
