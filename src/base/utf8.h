/* utf8.h -- is a text UTF-8? JSON and protobuf strings must be; bytes of strangers need not. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_UTF8_H
#define TD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* No surrogates, nothing beyond 10FFFF, no longer forms than needed. */
bool td__utf8_valid(const char *s, size_t nbytes);
/* Every byte that belongs to no character becomes '?'. A character that was cut at the end goes. */
void td__utf8_clean(char *s);

#endif
