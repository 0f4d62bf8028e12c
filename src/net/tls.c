/* tls.c -- the TLS filter, on OpenSSL. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

struct td__tls {
    SSL_CTX *ctx;
    X509 *cert;
    BIO_METHOD *socket; /* send() without SIGPIPE, which OpenSSL's own does not offer */
};

enum { GATHER_BYTES = 16384 }; /* one TLS record */

typedef struct tls_filter {
    td__filter base;
    SSL *ssl;
    uint8_t gather[GATHER_BYTES]; /* small parts become one record */
} tls_filter;

static td_status openssl_failed(const char *what)
{
    char text[200];
    unsigned long e = ERR_get_error();

    ERR_error_string_n(e, text, sizeof text);
    ERR_clear_error();
    return TD_FAIL(TD_EPROTO, "tls: %s: %s", what, e ? text : "the connection ended");
}

/* ---- the socket below ---- */

static int bio_write(BIO *b, const char *data, int n)
{
    int fd = (int)(intptr_t)BIO_get_data(b);
    ssize_t done = send(fd, data, (size_t)n, MSG_NOSIGNAL);

    BIO_clear_retry_flags(b);
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(b);
    return (int)done;
}

static int bio_read(BIO *b, char *data, int n)
{
    int fd = (int)(intptr_t)BIO_get_data(b);
    ssize_t done = recv(fd, data, (size_t)n, 0);

    BIO_clear_retry_flags(b);
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(b);
    return (int)done;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_socket_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE");

    if (m && BIO_meth_set_write(m, bio_write) && BIO_meth_set_read(m, bio_read) &&
        BIO_meth_set_ctrl(m, bio_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* ---- the certificate ---- */

static EVP_PKEY *make_key(void)
{
    return EVP_EC_gen("P-256");
}

static X509 *make_cert(EVP_PKEY *key)
{
    enum { YEAR_S = 365 * 24 * 3600, HOUR_S = 3600 };
    X509 *x = X509_new();
    X509_NAME *name = x ? X509_get_subject_name(x) : NULL;

    if (name && X509_set_version(x, 2) && ASN1_INTEGER_set(X509_get_serialNumber(x), 1) &&
        X509_gmtime_adj(X509_getm_notBefore(x), -HOUR_S) &&
        X509_gmtime_adj(X509_getm_notAfter(x), YEAR_S) && X509_set_pubkey(x, key) &&
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"tandem job",
                                   -1, -1, 0) &&
        X509_set_issuer_name(x, name) && X509_sign(x, key, EVP_sha256()))
        return x;
    X509_free(x);
    return NULL;
}

static FILE *open_private(const char *dir, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f && fd >= 0)
        close(fd);
    return f;
}

td_status td__tls_make(const char *dir)
{
    EVP_PKEY *key = make_key();
    X509 *cert = key ? make_cert(key) : NULL;
    FILE *fk = cert ? open_private(dir, "key.pem") : NULL;
    FILE *fc = cert ? open_private(dir, "cert.pem") : NULL;
    td_status st = TD_OK;

    if (!cert)
        st = openssl_failed("cannot create a certificate");
    else if (!fk || !fc)
        st = TD_FAIL(TD_EIO, "cannot write a certificate in %s: %s", dir, strerror(errno));
    else if (!PEM_write_PrivateKey(fk, key, NULL, NULL, 0, NULL, NULL) || !PEM_write_X509(fc, cert))
        st = openssl_failed("cannot write the certificate");
    if (fk && fclose(fk) && !st)
        st = TD_FAIL(TD_EIO, "%s/key.pem: %s", dir, strerror(errno));
    if (fc && fclose(fc) && !st)
        st = TD_FAIL(TD_EIO, "%s/cert.pem: %s", dir, strerror(errno));
    X509_free(cert);
    EVP_PKEY_free(key);
    return st;
}

/* Instead of a chain of authorities: the peer's certificate is ours, or it is a stranger's. */
static int same_cert(X509_STORE_CTX *x, void *ours)
{
    const X509 *theirs = X509_STORE_CTX_get0_cert(x);
    return theirs && X509_cmp(theirs, ours) == 0;
}

/* Where `name` is: in the folder `from`, or `from` itself. */
static void pem_path(const char *from, const char *name, char out[PATH_MAX])
{
    struct stat s;
    bool folder = !stat(from, &s) && S_ISDIR(s.st_mode);
    snprintf(out, PATH_MAX, "%s%s%s", from, folder ? "/" : "", folder ? name : "");
}

td_status td__tls_create(const char *from, td__tls **out)
{
    char cert[PATH_MAX], key[PATH_MAX];
    td__tls *t = td__calloc(1, sizeof *t);

    *out = NULL;
    if (!t)
        return TD_FAIL(TD_ENOMEM, "tls: settings");
    pem_path(from, "cert.pem", cert);
    pem_path(from, "key.pem", key);
    t->socket = make_socket_method();
    t->ctx = t->socket ? SSL_CTX_new(TLS_method()) : NULL;
    if (!t->ctx || !SSL_CTX_set_min_proto_version(t->ctx, TLS1_3_VERSION) ||
        SSL_CTX_use_certificate_file(t->ctx, cert, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(t->ctx, key, SSL_FILETYPE_PEM) != 1) {
        td__tls_destroy(t);
        return openssl_failed(from);
    }
    t->cert = SSL_CTX_get0_certificate(t->ctx);
    SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_cert_verify_callback(t->ctx, same_cert, t->cert);
    SSL_CTX_set_session_cache_mode(t->ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(t->ctx, 0);
    SSL_CTX_set_mode(t->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    *out = t;
    return TD_OK;
}

void td__tls_destroy(td__tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->ctx);
    BIO_meth_free(t->socket);
    td__free(t);
}

/* ---- the filter ---- */

/* OpenSSL's answer as ours: bytes, 0 for the end, -1 with errno. */
static ssize_t result(tls_filter *t, int n)
{
    if (n > 0)
        return n;
    switch (SSL_get_error(t->ssl, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; break;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: errno = ECONNRESET; break; /* also an end without close_notify */
    }
    ERR_clear_error();
    return -1;
}

static int int_bytes(size_t nbytes)
{
    return nbytes > INT_MAX / 2 ? INT_MAX / 2 : (int)nbytes;
}

static ssize_t tls_recv(td__filter *f, const struct iovec *iov, int n)
{
    tls_filter *t = (tls_filter *)f;

    (void)n; /* the first part alone: callers take what they get */
    return result(t, SSL_read(t->ssl, iov->iov_base, int_bytes(iov->iov_len)));
}

static ssize_t tls_send(td__filter *f, const struct iovec *iov, int n)
{
    tls_filter *t = (tls_filter *)f;
    size_t used = 0;

    if (n == 1 || iov->iov_len >= GATHER_BYTES)
        return result(t, SSL_write(t->ssl, iov->iov_base, int_bytes(iov->iov_len)));
    for (int i = 0; i < n && used < GATHER_BYTES; i++) {
        size_t take = iov[i].iov_len < GATHER_BYTES - used ? iov[i].iov_len : GATHER_BYTES - used;
        if (take > 0)
            memcpy(t->gather + used, iov[i].iov_base, take);
        used += take;
    }
    return result(t, SSL_write(t->ssl, t->gather, (int)used));
}

static bool tls_pending(const td__filter *f)
{
    return SSL_pending(((const tls_filter *)f)->ssl) > 0;
}

static void tls_destroy(td__filter *f)
{
    tls_filter *t = (tls_filter *)f;

    SSL_shutdown(t->ssl); /* says goodbye if it can without waiting */
    ERR_clear_error();
    SSL_free(t->ssl);
    td__free(t);
}

static const td__filter_ops TLS_OPS = {
    .name = "tls",
    .recv = tls_recv,
    .send = tls_send,
    .pending = tls_pending,
    .destroy = tls_destroy,
};

td_status td__tls_push(const td__tls *t, td__conn *c, td__hs_role role)
{
    tls_filter *f = td__calloc(1, sizeof *f);
    BIO *b = f ? BIO_new(t->socket) : NULL;

    if (!b || !(f->ssl = SSL_new(t->ctx))) {
        BIO_free(b);
        td__free(f);
        return TD_FAIL(TD_ENOMEM, "tls: a connection");
    }
    f->base.ops = &TLS_OPS;
    BIO_set_data(b, (void *)(intptr_t)c->fd);
    BIO_set_init(b, 1);
    SSL_set_bio(f->ssl, b, b);
    if (role == TD_HS_CLIENT)
        SSL_set_connect_state(f->ssl);
    else
        SSL_set_accept_state(f->ssl);
    td__conn_push_take(c, &f->base);
    return TD_OK;
}

td_status td__tls_step(td__conn *c, bool *done, bool *write)
{
    tls_filter *t = (tls_filter *)c->top;
    int rc = SSL_do_handshake(t->ssl);

    *done = rc == 1;
    *write = false;
    if (rc == 1)
        return TD_OK;
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_WRITE: *write = true; return TD_OK;
    case SSL_ERROR_WANT_READ: return TD_OK;
    default: return openssl_failed("handshake");
    }
}

td_status td__tls_binding(td__conn *c, uint8_t binding[TD_BINDING_BYTES])
{
    static const char LABEL[] = "EXPORTER-tandem-handshake";
    tls_filter *t = (tls_filter *)c->top;

    if (SSL_export_keying_material(t->ssl, binding, TD_BINDING_BYTES, LABEL, sizeof LABEL - 1, NULL,
                                   0, 0) != 1)
        return openssl_failed("exporter");
    return TD_OK;
}
