/* golden.h -- what the golden runs share with the programs that made their files: numbers that both
 * sides make by themselves (tests/golden/train/make.py says how), and reading losses. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_GOLDEN_H
#define TD_TESTS_SUPPORT_GOLDEN_H

#include "tandem/tandem.h"

/* A tensor of that name: integers below n, or numbers of [-1, 1) if n is 0. */
void golden_fill(const char *name, int n, void *out, size_t count);
/* The first weights where none are stored. */
void golden_params(td_params *ps);
/* Tensor `name`, (count) f64, of a file. */
void golden_losses(const char *path, const char *name, double *out, int count);

#endif
