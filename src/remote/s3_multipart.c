/* s3_multipart.c -- uploads in parts: the object appears when the last request, which names all
 * parts, has succeeded.
 *
 *   1. An upload of this key that was begun and not ended is taken up: parts that hold the same
 *      bytes (size and MD5, which is their ETag) are not sent again. Otherwise one is begun.
 *   2. Each missing part is sent with its sha256, so that a store refuses damaged ones.
 *   3. CompleteMultipartUpload. If its answer was lost, a repetition finds the upload gone; the
 *      object's size then says whether it had succeeded.
 *
 * After an error of the network the parts stay, for the next attempt; after a refusal they are
 * removed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "remote/remote_impl.h"
#include "remote/s3_xml.h"

enum { MOST_PARTS = 10000, ID_BYTES = 1024, ETAG = 128 };

typedef struct upload {
    td__remote *r;
    const td__url *at;
    int fd;
    uint64_t nbytes, part;
    int n_parts;
    char id[ID_BYTES];
    char (*etag)[ETAG]; /* "": not there yet */
    td__deadline until;
} upload;

static uint64_t part_size(const upload *u, int i)
{
    uint64_t begin = (uint64_t)i * u->part;
    return u->nbytes - begin < u->part ? u->nbytes - begin : u->part;
}

static td_status short_file(const upload *u)
{
    return TD_FAIL(TD_EIO, "s3://%s/%s: the file to be sent became shorter, or cannot be read",
                   u->at->bucket, u->at->path);
}

/* MD5 as S3 shows it, in quotes. It identifies a part; sha256 protects it. */
static td_status part_md5(const upload *u, int i, char out[ETAG])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    char block[1 << 16];
    uint64_t begin = (uint64_t)i * u->part, left = part_size(u, i);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    td_status st = TD_OK;

    if (!c || EVP_DigestInit_ex(c, EVP_md5(), NULL) != 1) {
        EVP_MD_CTX_free(c);
        return TD_FAIL(TD_ENOMEM, "MD5 is not to be had");
    }
    while (left && !st) {
        ssize_t got = pread(u->fd, block, left < sizeof block ? (size_t)left : sizeof block,
                            (off_t)(begin + part_size(u, i) - left));
        if (got <= 0)
            st = short_file(u);
        else if (EVP_DigestUpdate(c, block, (size_t)got) == 1)
            left -= (uint64_t)got;
    }
    EVP_DigestFinal_ex(c, digest, &n);
    EVP_MD_CTX_free(c);
    out[0] = '"';
    for (unsigned k = 0; k < n; k++)
        snprintf(out + 1 + 2 * k, 3, "%02x", digest[k]);
    snprintf(out + 1 + 2 * n, 2, "\"");
    return st;
}

/* Step 1: the newest upload of exactly this key, if there is one. */
static td_status find_begun(upload *u)
{
    char key[TD__URL_BYTES];
    td__url bucket = *u->at;
    td__http_response a;
    td__s3_xml x;
    td__s3_request q = {.at = &bucket, .http = {.until = u->until}};

    bucket.path[0] = '\0';
    q.query[q.n_query++] = (td__sigv4_pair){"uploads", ""};
    q.query[q.n_query++] = (td__sigv4_pair){"prefix", u->at->path};
    td_status st = td__s3_call(u->r, &q, true, &a);
    if (!st)
        for (td__s3_xml_init(&x, &a.body); td__s3_xml_next(&x, "Upload");)
            if (td__s3_xml_text(&x, "Key", key, sizeof key) && strcmp(key, u->at->path) == 0 &&
                !td__s3_xml_text(&x, "UploadId", u->id, sizeof u->id))
                u->id[0] = '\0';
    td__http_response_fini(&a);
    return st;
}

/* Its parts that need not be sent again. */
static td_status find_parts(upload *u)
{
    char number[16], size[32], marker[16] = "", truncated[8], md5[ETAG];
    td_status st = TD_OK;
    bool more = true;

    while (!st && more) {
        td__s3_request q = {.at = u->at, .http = {.until = u->until}};
        td__http_response a;
        td__s3_xml x;
        q.query[q.n_query++] = (td__sigv4_pair){"uploadId", u->id};
        if (marker[0])
            q.query[q.n_query++] = (td__sigv4_pair){"part-number-marker", marker};
        st = td__s3_call(u->r, &q, true, &a);
        more = false;
        if (!st) {
            for (td__s3_xml_init(&x, &a.body); !st && td__s3_xml_next(&x, "Part");) {
                unsigned i = 0;
                unsigned long long nbytes = 0;
                char etag[ETAG];
                if (td__s3_xml_text(&x, "PartNumber", number, sizeof number) &&
                    td__s3_xml_text(&x, "Size", size, sizeof size) &&
                    td__s3_xml_text(&x, "ETag", etag, sizeof etag) &&
                    sscanf(number, "%u", &i) == 1 && sscanf(size, "%llu", &nbytes) == 1 && i >= 1 &&
                    i <= (unsigned)u->n_parts && nbytes == part_size(u, (int)i - 1)) {
                    st = part_md5(u, (int)i - 1, md5);
                    if (!st && strcmp(md5, etag) == 0)
                        memcpy(u->etag[i - 1], etag, ETAG);
                }
            }
            more = td__s3_xml_whole_text(&a.body, "IsTruncated", truncated, sizeof truncated) &&
                   strcmp(truncated, "true") == 0 &&
                   td__s3_xml_whole_text(&a.body, "NextPartNumberMarker", marker, sizeof marker);
        }
        td__http_response_fini(&a);
    }
    return st;
}

static td_status begin(upload *u)
{
    td__s3_request q = {.method = "POST",
                        .at = u->at,
                        .query = {{"uploads", ""}},
                        .n_query = 1,
                        .http = {.until = u->until, .repeatable = true}};
    td__http_response a;
    td_status st = td__s3_call(u->r, &q, true, &a);

    if (!st && !td__s3_xml_whole_text(&a.body, "UploadId", u->id, sizeof u->id))
        st = TD_FAIL(TD_EPROTO, "s3://%s/%s: the answer names no upload", u->at->bucket,
                     u->at->path);
    td__http_response_fini(&a);
    return st;
}

static td_status send_part(upload *u, int i)
{
    char number[16], hash[TD_SHA256_HEX];
    uint64_t begin_at = (uint64_t)i * u->part;
    td__http_response a;
    td__s3_request q = {.method = "PUT",
                        .at = u->at,
                        .query = {{"partNumber", number}, {"uploadId", u->id}},
                        .n_query = 2,
                        .payload = hash,
                        .http = {.until = u->until,
                                 .body_fd = u->fd,
                                 .body_offset = begin_at,
                                 .body_nbytes = (size_t)part_size(u, i)}};

    snprintf(number, sizeof number, "%d", i + 1);
    TD_TRY(td__sha256_fd(u->fd, begin_at, part_size(u, i), u->at->path, hash));
    td_status st = td__s3_call(u->r, &q, true, &a);
    if (!st && (!a.etag[0] || strlen(a.etag) >= ETAG))
        st = TD_FAIL(TD_EPROTO, "s3://%s/%s: part %d has no ETag", u->at->bucket, u->at->path,
                     i + 1);
    if (!st)
        memcpy(u->etag[i], a.etag, strlen(a.etag) + 1);
    td__http_response_fini(&a);
    return st;
}

/* Is the object there, with its size? */
static bool is_there(upload *u)
{
    td__s3_request q = {.method = "HEAD", .at = u->at, .http = {.until = u->until}};
    td__http_response a;
    bool there = !td__s3_call(u->r, &q, true, &a) && a.content_nbytes == (int64_t)u->nbytes;
    td__http_response_fini(&a);
    return there;
}

static td_status complete(upload *u)
{
    td__text body = {0};
    td__http_response a;
    char code[128];
    td_status st;
    td__s3_request q = {.method = "POST",
                        .at = u->at,
                        .query = {{"uploadId", u->id}},
                        .n_query = 1,
                        .http = {.until = u->until, .repeatable = true}};

    td__text_add(&body, "<CompleteMultipartUpload>");
    for (int i = 0; i < u->n_parts; i++) {
        td__text_printf(&body, "<Part><PartNumber>%d</PartNumber><ETag>", i + 1);
        td__text_html(&body, u->etag[i]);
        td__text_add(&body, "</ETag></Part>");
    }
    td__text_add(&body, "</CompleteMultipartUpload>");
    st = td__text_status(&body);
    if (st)
        goto done;
    q.http.body = body.data;
    q.http.body_nbytes = body.used;
    st = td__s3_call(u->r, &q, true, &a);
    /* A failure while it is put together may come after the status, in the body. */
    if (!st && a.body.used && strstr(a.body.data, "<Error>")) {
        if (!td__s3_xml_whole_text(&a.body, "Code", code, sizeof code))
            snprintf(code, sizeof code, "unknown");
        st = TD_FAIL(TD_EPEER, "s3://%s/%s: the parts cannot be put together: %s", u->at->bucket,
                     u->at->path, code);
    }
    td__http_response_fini(&a);
    if (st == TD_EINVAL && u->r->status == 404 && is_there(u))
        st = TD_OK;
done:
    td__text_fini(&body);
    return st;
}

static void give_up(upload *u)
{
    char text[512];
    td__s3_request q = {.method = "DELETE",
                        .at = u->at,
                        .query = {{"uploadId", u->id}},
                        .n_query = 1,
                        .http = {.until = u->until}};
    td__http_response a;

    snprintf(text, sizeof text, "%s", td_last_error());
    if (td__s3_call(u->r, &q, true, &a))
        TD_LOG(WARN, NET, "parts stay behind: %s", td_last_error());
    td__http_response_fini(&a);
    (void)TD_FAIL(TD_EINVAL, "%s", text); /* the first error is the one to be told */
}

td_status td__s3_put_parts(td__remote *r, const td__url *at, int fd, uint64_t nbytes,
                           td__deadline until)
{
    upload u = {.r = r, .at = at, .fd = fd, .nbytes = nbytes, .until = until};
    td_status st;

    u.part = r->part_nbytes;
    while (nbytes / u.part >= MOST_PARTS)
        u.part *= 2;
    u.n_parts = (int)((nbytes + u.part - 1) / u.part);
    u.etag = td__calloc((size_t)u.n_parts, sizeof *u.etag);
    if (!u.etag)
        return TD_FAIL(TD_ENOMEM, "out of memory for an upload in parts");
    if (find_begun(&u) || (u.id[0] && find_parts(&u))) { /* a store without such lists */
        u.id[0] = '\0';
        memset(u.etag, 0, (size_t)u.n_parts * sizeof *u.etag);
    }
    if (u.id[0])
        TD_LOG(INFO, NET, "s3://%s/%s: an upload that was begun is taken up", at->bucket, at->path);
    else
        TD_TRY_OR(st, done, begin(&u));
    st = TD_OK;
    for (int i = 0; i < u.n_parts && !st; i++)
        if (!u.etag[i][0])
            st = send_part(&u, i);
    if (!st)
        st = complete(&u);
    if (st == TD_EINVAL)
        give_up(&u);
done:
    td__free(u.etag);
    return st;
}
