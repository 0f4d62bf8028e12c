/* sha256.c -- SHA-256 by OpenSSL. Only making a context can fail (memory); a failure while hashing
 * would mean a broken library, and is an assertion. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

td_status td__sha256_init(td__sha256 *h)
{
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx)
        return TD_FAIL(TD_ENOMEM, "no memory for a sha256 context");
    if (EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
        td__sha256_fini(h);
        return TD_FAIL(TD_ENOTSUP, "OpenSSL does not offer sha256");
    }
    return TD_OK;
}

void td__sha256_update(td__sha256 *h, const void *data, size_t nbytes)
{
    int ok = EVP_DigestUpdate(h->ctx, data, nbytes);
    TD_ASSERT(ok == 1, "EVP_DigestUpdate of %zu bytes", nbytes);
}

void td__sha256_final(td__sha256 *h, uint8_t digest[TD_SHA256_BYTES])
{
    int ok = EVP_DigestFinal_ex(h->ctx, digest, NULL);
    TD_ASSERT(ok == 1, "EVP_DigestFinal_ex");
    td__sha256_fini(h);
}

void td__sha256_fini(td__sha256 *h)
{
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
}

td_status td__sha256_of(const void *data, size_t nbytes, uint8_t digest[TD_SHA256_BYTES])
{
    td__sha256 h;

    TD_TRY(td__sha256_init(&h));
    td__sha256_update(&h, data, nbytes);
    td__sha256_final(&h, digest);
    return TD_OK;
}

void td__sha256_hex(const uint8_t digest[TD_SHA256_BYTES], char hex[TD_SHA256_HEX])
{
    static const char DIGITS[] = "0123456789abcdef";

    for (int i = 0; i < TD_SHA256_BYTES; i++) {
        hex[2 * i] = DIGITS[digest[i] >> 4];
        hex[2 * i + 1] = DIGITS[digest[i] & 15];
    }
    hex[TD_SHA256_HEX - 1] = 0;
}

td_status td__sha256_fd(int fd, uint64_t begin, uint64_t nbytes, const char *path,
                        char hex[TD_SHA256_HEX])
{
    uint8_t digest[TD_SHA256_BYTES];
    char block[1 << 16];
    td__sha256 h;

    TD_TRY(td__sha256_init(&h));
    for (uint64_t done = 0; done < nbytes;) {
        uint64_t left = nbytes - done;
        ssize_t got = pread(fd, block, left < sizeof block ? (size_t)left : sizeof block,
                            (off_t)(begin + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            td__sha256_fini(&h);
            return TD_FAIL(TD_EIO, "%s: cannot read it: %s", path,
                           got < 0 ? strerror(errno) : "it became shorter");
        }
        td__sha256_update(&h, block, (size_t)got);
        done += (uint64_t)got;
    }
    td__sha256_final(&h, digest);
    td__sha256_hex(digest, hex);
    return TD_OK;
}
