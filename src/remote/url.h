/* url.h -- where an object lies: s3://bucket/key, http://..., https://..., file:/path or a path. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_URL_H
#define TD_REMOTE_URL_H

#include "base/text.h"

typedef enum td__url_kind { TD_URL_FILE, TD_URL_HTTP, TD_URL_S3 } td__url_kind;

enum { TD__URL_BYTES = 4096, TD__BUCKET_BYTES = 256 };

typedef struct td__url {
    td__url_kind kind;
    char bucket[TD__BUCKET_BYTES]; /* of S3 */
    /* A file's path; S3's key without a leading '/', as it is stored (not percent-encoded); the
     * whole address of HTTP. */
    char path[TD__URL_BYTES];
} td__url;

/* Does the text begin with a scheme, "name:", known or not? "C:" and "a/b:c" do not. */
bool td__url_has_scheme(const char *text);
/* TD_EINVAL with one line: an unknown scheme, no bucket, a key that climbs ("..") and the like. */
TD_NODISCARD td_status td__url_parse(const char *text, td__url *out);
/* "base/name", with one '/' between them. TD_EINVAL if it does not fit. */
TD_NODISCARD td_status td__url_join(const char *base, const char *name, char out[TD__URL_BYTES]);
/* The address as it may be shown: without user, password, query and fragment. */
void td__url_shown(const char *text, char *out, size_t nbytes);
/* RFC 3986: all but letters, digits and -._~ as %XX; '/' stays where keep_slashes. */
void td__url_encode(td__text *to, const char *text, bool keep_slashes);

#endif
