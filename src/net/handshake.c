/* handshake.c -- mutual challenge and response, as a state machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/handshake.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <string.h>

#include "base/fail.h"

typedef struct hello {
    char magic[8];
    uint16_t version;
    uint16_t role;
    uint32_t service;
    uint8_t nonce[TD_NONCE_BYTES];
} hello;
static_assert(sizeof(hello) == TD_HELLO_BYTES && offsetof(hello, nonce) == 16, "wire");
static_assert(offsetof(hello, version) == 8 && offsetof(hello, service) == 12, "wire");

enum { VERSION = 1, LABEL_BYTES = 16 };
static const char MAGIC[8] = "TANDEM\r\n"; /* the line end shows channels that alter text */
static const char LABEL[2][LABEL_BYTES] = {"tandem client 1", "tandem server 1"};

static int side(td__hs_role role)
{
    return role == TD_HS_CLIENT ? 0 : 1;
}

static td_status prove(const td__handshake *h, td__hs_role who, uint8_t proof[TD_PROOF_BYTES])
{
    uint8_t text[LABEL_BYTES + 2 * TD_HELLO_BYTES + TD_BINDING_BYTES], *at = text;
    unsigned int n = 0;

    memcpy(at, LABEL[side(who)], LABEL_BYTES);
    at += LABEL_BYTES;
    memcpy(at, h->hello, sizeof h->hello);
    at += sizeof h->hello;
    memcpy(at, h->binding, TD_BINDING_BYTES);
    if (!HMAC(EVP_sha256(), h->secret.bytes, sizeof h->secret.bytes, text, sizeof text, proof,
              &n) ||
        n != TD_PROOF_BYTES)
        return TD_FAIL(TD_EIO, "handshake: OpenSSL cannot compute HMAC-SHA256");
    return TD_OK;
}

td_status td__handshake_init(td__handshake *h, const td__secret *secret, td__hs_role role,
                             td__hs_service service, const uint8_t *binding)
{
    hello own = {.version = VERSION, .role = (uint16_t)role, .service = (uint32_t)service};

    memset(h, 0, sizeof *h);
    h->role = role;
    h->service = service;
    h->secret = *secret;
    if (binding)
        memcpy(h->binding, binding, TD_BINDING_BYTES);
    memcpy(own.magic, MAGIC, sizeof MAGIC);
    if (RAND_bytes(own.nonce, sizeof own.nonce) != 1)
        return TD_FAIL(TD_EIO, "handshake: OpenSSL has no random numbers");
    memcpy(h->hello[side(role)], &own, sizeof own);
    if (role == TD_HS_CLIENT) {
        memcpy(h->out, &own, sizeof own);
        h->out_used = sizeof own;
        h->in_want = TD_HELLO_BYTES + TD_PROOF_BYTES;
    } else {
        h->in_want = TD_HELLO_BYTES;
    }
    return TD_OK;
}

static td_status check_hello(const td__handshake *h)
{
    hello peer;
    uint16_t role = h->role == TD_HS_CLIENT ? TD_HS_SERVER : TD_HS_CLIENT;

    memcpy(&peer, h->in, sizeof peer);
    if (memcmp(peer.magic, MAGIC, sizeof MAGIC) != 0)
        return TD_FAIL(TD_EPROTO, "not a tandem handshake");
    if (peer.version != VERSION)
        return TD_FAIL(TD_EPROTO, "handshake version %u; this program has %d", peer.version,
                       VERSION);
    if (peer.role != role || peer.service != (uint32_t)h->service)
        return TD_FAIL(TD_EPROTO, "role %u of service %u where role %u of service %u was expected",
                       peer.role, peer.service, role, (unsigned)h->service);
    return TD_OK;
}

static td_status check_proof(const td__handshake *h, const uint8_t *given)
{
    uint8_t want[TD_PROOF_BYTES];

    TD_TRY(prove(h, h->role == TD_HS_CLIENT ? TD_HS_SERVER : TD_HS_CLIENT, want));
    if (CRYPTO_memcmp(given, want, TD_PROOF_BYTES))
        return TD_FAIL(TD_EPROTO, "wrong secret");
    return TD_OK;
}

td_status td__handshake_advance(td__handshake *h)
{
    if (h->done || h->in_used < h->in_want)
        return TD_OK;
    if (!h->answered) {
        TD_TRY(check_hello(h));
        memcpy(h->hello[1 - side(h->role)], h->in, TD_HELLO_BYTES);
        h->answered = true;
        h->in_used = h->in_want = 0;
        if (h->role == TD_HS_SERVER) {
            memcpy(h->out, h->hello[1], TD_HELLO_BYTES);
            TD_TRY(prove(h, TD_HS_SERVER, h->out + TD_HELLO_BYTES));
            h->out_used = TD_HELLO_BYTES + TD_PROOF_BYTES;
            h->in_want = TD_PROOF_BYTES;
            return TD_OK;
        }
        TD_TRY(check_proof(h, h->in + TD_HELLO_BYTES));
        TD_TRY(prove(h, TD_HS_CLIENT, h->out));
        h->out_used = TD_PROOF_BYTES;
        h->out_sent = 0;
    } else {
        TD_TRY(check_proof(h, h->in));
    }
    h->done = true;
    return TD_OK;
}
