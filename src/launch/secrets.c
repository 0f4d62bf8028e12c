/* secrets.c -- see secrets.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/secrets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "net/tls.h"

static td_status read_pem(const char *dir, const char *name, char **out)
{
    char path[96];
    td__file_map map;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    TD_TRY(td__file_map_open(&map, path));
    *out = td__calloc(1, map.nbytes + 1);
    if (*out)
        memcpy(*out, map.data, map.nbytes);
    td__file_map_close(&map);
    unlink(path);
    return *out ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a certificate");
}

/* A certificate for this launch; the agents get it with their orders. */
static td_status new_certificate(td__job_secrets *s)
{
    char dir[] = "/tmp/tandem-tls-XXXXXX";
    if (!mkdtemp(dir))
        return TD_FAIL(TD_EIO, "cannot make a folder for the TLS key: %s", strerror(errno));
    td_status st = td__tls_make(dir);
    st = st ? st : read_pem(dir, "cert.pem", &s->cert);
    st = st ? st : read_pem(dir, "key.pem", &s->key);
    rmdir(dir);
    return st;
}

td_status td__job_secrets_init(td__job_secrets *s, bool tls)
{
    uint8_t mark[8];
    if (getrandom(s->secret.bytes, sizeof s->secret.bytes, 0) != sizeof s->secret.bytes ||
        getrandom(mark, sizeof mark, 0) != sizeof mark)
        return TD_FAIL(TD_EIO, "no random numbers for the secret: %s", strerror(errno));
    for (size_t i = 0; i < sizeof mark; i++)
        snprintf(s->job + 2 * i, 3, "%02x", mark[i]);
    return tls ? new_certificate(s) : TD_OK;
}

void td__job_secrets_fini(td__job_secrets *s)
{
    explicit_bzero(&s->secret, sizeof s->secret);
    if (s->key)
        explicit_bzero(s->key, strlen(s->key));
    td__free(s->key);
    td__free(s->cert);
}
