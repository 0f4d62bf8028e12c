/* pattern.h -- names of weights chosen by patterns, as of model.freeze: `encoder` is the layer of
 * that name with all inside it, `*.bias` every name that ends so; * and ? mean what they do in a
 * shell. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_PATTERN_H
#define TD_BASE_PATTERN_H

#include <stdbool.h>

bool td__pattern_matches(const char *pattern, const char *name);
/* The first of n patterns that matches; -1: none. */
int td__patterns_find(const char *const *patterns, int n, const char *name);

#endif
