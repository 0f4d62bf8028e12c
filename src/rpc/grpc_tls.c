/* grpc_tls.c -- the TLS filter: OpenSSL between two memory buffers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/grpc_tls.h"

#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/alloc.h"
#include "base/fail.h"

struct td__grpc_tls_context {
    SSL_CTX *ctx;
};

struct td__grpc_tls {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
};

static td_status openssl_failed(const char *what, const char *which)
{
    char text[200];
    unsigned long e = ERR_get_error();

    ERR_error_string_n(e, text, sizeof text);
    ERR_clear_error();
    return TD_FAIL(TD_EPROTO, "tls: %s%s%s: %s", what, which ? " " : "", which ? which : "",
                   e ? text : "the connection ended");
}

static int pick_h2(SSL *ssl, const unsigned char **out, unsigned char *n_out,
                   const unsigned char *in, unsigned n_in, void *arg)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    unsigned char *picked;

    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&picked, n_out, h2, sizeof h2, in, n_in) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = picked;
    return SSL_TLSEXT_ERR_OK;
}

td_status td__grpc_tls_context_create(const char *cert_file, const char *key_file,
                                      td__grpc_tls_context **out)
{
    td__grpc_tls_context *x = td__calloc(1, sizeof *x);
    td_status st = TD_OK;

    *out = NULL;
    if (!x)
        return TD_FAIL(TD_ENOMEM, "tls: out of memory");
    x->ctx = SSL_CTX_new(TLS_server_method());
    if (!x->ctx)
        st = openssl_failed("context", NULL);
    else if (SSL_CTX_use_certificate_chain_file(x->ctx, cert_file) != 1)
        st = openssl_failed("certificate", cert_file);
    else if (SSL_CTX_use_PrivateKey_file(x->ctx, key_file, SSL_FILETYPE_PEM) != 1)
        st = openssl_failed("private key", key_file);
    if (st) {
        td__grpc_tls_context_destroy(x);
        return st;
    }
    SSL_CTX_set_min_proto_version(x->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(x->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(x->ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(x->ctx, pick_h2, NULL);
    *out = x;
    return TD_OK;
}

void td__grpc_tls_context_destroy(td__grpc_tls_context *x)
{
    if (!x)
        return;
    SSL_CTX_free(x->ctx);
    td__free(x);
}

td_status td__grpc_tls_create(const td__grpc_tls_context *x, td__grpc_tls **out)
{
    td__grpc_tls *t = td__calloc(1, sizeof *t);

    *out = NULL;
    if (!t)
        return TD_FAIL(TD_ENOMEM, "tls: out of memory");
    t->ssl = SSL_new(x->ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out) {
        SSL_free(t->ssl);
        BIO_free(t->in);
        BIO_free(t->out);
        td__free(t);
        return TD_FAIL(TD_ENOMEM, "tls: out of memory");
    }
    BIO_set_mem_eof_return(t->in, -1); /* empty means "later", not "the end" */
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_accept_state(t->ssl);
    *out = t;
    return TD_OK;
}

void td__grpc_tls_destroy(td__grpc_tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    td__free(t);
}

td_status td__grpc_tls_feed(td__grpc_tls *t, const uint8_t *data, size_t nbytes)
{
    if (BIO_write(t->in, data, (int)nbytes) != (int)nbytes)
        return TD_FAIL(TD_ENOMEM, "tls: out of memory");
    return TD_OK;
}

td_status td__grpc_tls_read(td__grpc_tls *t, uint8_t *buf, size_t nbytes, size_t *got)
{
    int n = SSL_read(t->ssl, buf, nbytes > INT_MAX ? INT_MAX : (int)nbytes);

    *got = n > 0 ? (size_t)n : 0;
    if (n > 0 || SSL_get_error(t->ssl, n) == SSL_ERROR_WANT_READ)
        return TD_OK;
    return openssl_failed("reading", NULL);
}

td_status td__grpc_tls_write(td__grpc_tls *t, const uint8_t *data, size_t nbytes)
{
    while (nbytes) {
        int n = SSL_write(t->ssl, data, nbytes > INT_MAX ? INT_MAX : (int)nbytes);

        if (n <= 0)
            return openssl_failed("writing", NULL);
        data += n;
        nbytes -= (size_t)n;
    }
    return TD_OK;
}

bool td__grpc_tls_ready(const td__grpc_tls *t)
{
    return SSL_is_init_finished(t->ssl);
}

size_t td__grpc_tls_pending(const td__grpc_tls *t)
{
    return BIO_ctrl_pending(t->out);
}

size_t td__grpc_tls_take(td__grpc_tls *t, uint8_t *buf, size_t nbytes)
{
    int n = BIO_read(t->out, buf, nbytes > INT_MAX ? INT_MAX : (int)nbytes);

    return n > 0 ? (size_t)n : 0;
}
