/* tfrecord.c -- see tfrecord.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format/tfrecord.h"

#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"

/* ---- Records --------------------------------------------------------------------------------- */

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t v = 0;

    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static bool sum_is(const uint8_t *data, size_t nbytes, const uint8_t *sum)
{
    uint32_t crc = td__crc32c(0, data, nbytes);
    return ((crc >> 15 | crc << 17) + 0xa282ead8u) == (uint32_t)little(sum, 4);
}

td_status td__tfrecord_next(td__tfrecords *t, bool *end)
{
    const uint8_t *p = t->data + t->at;
    size_t left = t->nbytes - t->at;

    *end = left == 0;
    if (*end)
        return TD_OK;
    t->number++;
    if (left < 12 || !sum_is(p, 8, p + 8))
        return TD_FAIL(TD_EPROTO, "%s: record %" PRId64 ": not a TFRecord file, or damaged",
                       t->where, t->number);
    uint64_t length = little(p, 8);
    if (length > left - 12 || left - 12 - length < 4)
        return TD_FAIL(TD_EPROTO, "%s: it ends within record %" PRId64, t->where, t->number);
    t->record = p + 12;
    t->record_nbytes = (size_t)length;
    if (!sum_is(t->record, t->record_nbytes, t->record + length))
        return TD_FAIL(TD_EPROTO, "%s: record %" PRId64 " is damaged", t->where, t->number);
    t->at += 16 + (size_t)length;
    return TD_OK;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* A message that is read field by field. */
typedef struct message {
    const uint8_t *p, *end;
    bool bad;
    uint32_t field;
    int type;
    const uint8_t *bytes; /* type 2, and the bytes of types 1 and 5 */
    size_t nbytes;
} message;

static uint64_t read_varint(message *m)
{
    uint64_t v = 0;

    for (int shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        uint8_t b = *m->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    m->bad = true;
    return 0;
}

/* False: after the last field, or it is no message. */
static bool next_field(message *m)
{
    if (m->bad || m->p == m->end)
        return false;
    uint64_t key = read_varint(m), n = 0;
    m->field = (uint32_t)(key >> 3);
    m->type = (int)(key & 7);
    m->bytes = m->p;
    switch (m->type) {
    case 0: read_varint(m); break;
    case 1: n = 8; break;
    case 2:
        n = read_varint(m);
        m->bytes = m->p;
        break;
    case 5: n = 4; break;
    default: m->bad = true;
    }
    if (m->bad || n > (size_t)(m->end - m->p)) {
        m->bad = true;
        return false;
    }
    m->p += n;
    m->nbytes = (size_t)(m->p - m->bytes);
    return true;
}

static message message_of(const uint8_t *data, size_t nbytes)
{
    return (message){.p = data, .end = data + nbytes};
}

/* What a field of a list holds: values of 4 bytes, varints, or bytes. */
static int64_t values_in(const message *m, td__example_kind kind, bool *good)
{
    if (kind == TD_EXAMPLE_BYTES) {
        *good = m->type == 2;
        return 1;
    }
    if (kind == TD_EXAMPLE_FLOATS) {
        *good = (m->type == 2 || m->type == 5) && m->nbytes % 4 == 0;
        return (int64_t)(m->nbytes / 4);
    }
    message packed = message_of(m->bytes, m->nbytes);
    int64_t n = 0;
    for (; packed.p < packed.end && !packed.bad; n++)
        read_varint(&packed);
    *good = (m->type == 0 || m->type == 2) && !packed.bad;
    return n;
}

static bool count_values(td__example_feature *f)
{
    message m = message_of(f->list, f->list_nbytes);
    bool good = true;

    while (good && next_field(&m))
        if (m.field == 1)
            f->count += values_in(&m, f->kind, &good);
    return good && !m.bad;
}

/* A Feature: one list of a kind. */
static bool read_feature(const message *from, td__example_feature *f)
{
    message m = message_of(from->bytes, from->nbytes);

    while (next_field(&m))
        if (m.field >= 1 && m.field <= 3 && m.type == 2) {
            f->kind = (td__example_kind)m.field;
            f->list = m.bytes;
            f->list_nbytes = m.nbytes;
        }
    return !m.bad && (f->kind == TD_EXAMPLE_NONE || count_values(f));
}

static bool read_entry(const message *from, td__example_see see, void *user)
{
    message m = message_of(from->bytes, from->nbytes);
    td__example_feature f = {.name = ""};
    bool good = true;

    while (good && next_field(&m)) {
        if (m.field == 1 && m.type == 2) {
            f.name = (const char *)m.bytes;
            f.name_nbytes = m.nbytes;
        } else if (m.field == 2 && m.type == 2) {
            good = read_feature(&m, &f);
        }
    }
    return good && !m.bad && see(user, &f);
}

bool td__example_walk(const uint8_t *data, size_t nbytes, td__example_see see, void *user)
{
    message example = message_of(data, nbytes);
    bool good = true;

    while (good && next_field(&example)) {
        if (example.field != 1 || example.type != 2)
            continue;
        message features = message_of(example.bytes, example.nbytes);
        while (good && next_field(&features))
            if (features.field == 1 && features.type == 2)
                good = read_entry(&features, see, user);
        good = good && !features.bad;
    }
    return good && !example.bad;
}

void td__example_numbers(const td__example_feature *f, double *out)
{
    message m = message_of(f->list, f->list_nbytes);

    while (next_field(&m)) {
        if (m.field != 1)
            continue;
        message packed = message_of(m.bytes, m.nbytes);
        while (packed.p < packed.end && !packed.bad) {
            if (f->kind == TD_EXAMPLE_FLOATS) {
                uint32_t bits = (uint32_t)little(packed.p, 4);
                float v;
                memcpy(&v, &bits, sizeof v);
                *out++ = (double)v;
                packed.p += 4;
            } else {
                *out++ = (double)(int64_t)read_varint(&packed);
            }
        }
    }
}

const uint8_t *td__example_bytes(const td__example_feature *f, size_t *nbytes)
{
    message m = message_of(f->list, f->list_nbytes);

    while (next_field(&m))
        if (m.field == 1 && m.type == 2) {
            *nbytes = m.nbytes;
            return m.bytes;
        }
    return NULL;
}
