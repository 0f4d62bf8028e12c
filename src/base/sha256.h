/* sha256.h -- SHA-256 of memory, at once or piece by piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_SHA256_H
#define TD_BASE_SHA256_H

#include "tandem/status.h"

enum { TD_SHA256_BYTES = 32, TD_SHA256_HEX = 65 /* with the final 0 */ };

typedef struct td__sha256 {
    void *ctx; /* OpenSSL's */
} td__sha256;

/* init, update any number of times, then final, which also releases. fini gives up instead; after
 * final, or on a zeroed struct, it does nothing. */
TD_NODISCARD td_status td__sha256_init(td__sha256 *h);
void td__sha256_update(td__sha256 *h, const void *data, size_t nbytes);
void td__sha256_final(td__sha256 *h, uint8_t digest[TD_SHA256_BYTES]);
void td__sha256_fini(td__sha256 *h);

TD_NODISCARD td_status td__sha256_of(const void *data, size_t nbytes,
                                     uint8_t digest[TD_SHA256_BYTES]);

/* Lower-case hexadecimal digits. */
void td__sha256_hex(const uint8_t digest[TD_SHA256_BYTES], char hex[TD_SHA256_HEX]);

/* sha256 of bytes [begin, begin + nbytes) of a file, in hexadecimal digits; `path` for errors. */
TD_NODISCARD td_status td__sha256_fd(int fd, uint64_t begin, uint64_t nbytes, const char *path,
                                     char hex[TD_SHA256_HEX]);

#endif
