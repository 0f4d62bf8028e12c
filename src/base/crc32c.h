/* crc32c.h -- the Castagnoli CRC, as iSCSI, ext4 and TFRecord use it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_CRC32C_H
#define TD_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of `data` after bytes whose CRC is `before` (0 for none): pieces may be chained. */
uint32_t td__crc32c(uint32_t before, const void *data, size_t nbytes);
/* The same without special instructions: the judge in tests. */
uint32_t td__crc32c_table(uint32_t before, const void *data, size_t nbytes);

#endif
