/* sigv4.h -- AWS Signature Version 4: the header by which a request to S3 says who sends it.
 *
 *     canonical = METHOD \n path \n query \n "name:value\n"... \n names \n payload hash
 *     key       = HMAC(HMAC(HMAC(HMAC("AWS4" secret, date), region), "s3"), "aws4_request")
 *     signature = HMAC(key, "AWS4-HMAC-SHA256" \n time \n scope \n sha256(canonical))
 *
 * with query and headers sorted by name. Done here and not by libcurl, whose signer (7.88) neither
 * sorts the query nor sends the hash of the payload, which strict stores refuse; later versions
 * differ again. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_SIGV4_H
#define TD_REMOTE_SIGV4_H

#include <time.h>

#include "base/sha256.h"
#include "base/text.h"

typedef struct td__sigv4_pair {
    const char *name, *value; /* as they are: not encoded */
} td__sigv4_pair;

enum { TD__SIGV4_PAIRS = 16 };

typedef struct td__sigv4 {
    const char *access_key, *secret_key;
    const char *region;
    time_t now;
    const char *method;
    const char *path;                      /* percent-encoded, begins with '/' */
    td__sigv4_pair query[TD__SIGV4_PAIRS]; /* sorted by td__sigv4_sign */
    int n_query;
    td__sigv4_pair header[TD__SIGV4_PAIRS]; /* names in lower case; sorted likewise */
    int n_headers;
    char payload[TD_SHA256_HEX]; /* sha256 of the body */
} td__sigv4;

/* Adds x-amz-date, x-amz-content-sha256 and their values to the headers (the texts lie in `s` as
 * long as it does), sorts both lists, and gives the value of the header Authorization. */
typedef struct td__sigv4_times {
    char stamp[20]; /* 20130524T000000Z */
    char day[12];
} td__sigv4_times;
TD_NODISCARD td_status td__sigv4_sign(td__sigv4 *s, td__sigv4_times *times,
                                      td__text *authorization);

/* The query as it is to be sent: "a=1&b=%2F", in the order of the list. */
void td__sigv4_query(const td__sigv4 *s, td__text *out);

#endif
