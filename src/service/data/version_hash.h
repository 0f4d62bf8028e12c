/* version_hash.h -- the name of a version of a data set: which of its commits are in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_DATA_VERSION_HASH_H
#define TD_SERVICE_DATA_VERSION_HASH_H

#include "base/text.h"

/* "hash" and, in base64, a set of bits, the lowest of the first byte first: bit n stands for commit
 * n. Commits 1 and 2 are "hashBg==". The same commits give the same name. */
void td__version_hash(const int *commits, int n, td__text *out);
/* Is this commit in the version of that name? */
bool td__version_has(const char *hash, int commit);

#endif
