/* message_json.c -- messages as JSON; see message_json.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/message_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/fail.h"

/* protobuf-c does not say which messages are entries of maps; the compiler names them so. */
static bool is_map(const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *d = f->descriptor;
    size_t n = f->type == PROTOBUF_C_TYPE_MESSAGE ? strlen(d->short_name) : 0;

    return f->label == PROTOBUF_C_LABEL_REPEATED && n > 5 && d->n_fields == 2 &&
           !strcmp(d->short_name + n - 5, "Entry") && !strcmp(d->fields[0].name, "key") &&
           !strcmp(d->fields[1].name, "value");
}

static size_t size_of(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM: return 4;
    default: return 0; /* no message that becomes JSON has fields of other types */
    }
}

/* ---- to JSON ---- */

static void put_value(const ProtobufCFieldDescriptor *f, const void *at, td__text *out)
{
    const ProtobufCEnumValue *e;

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32: td__text_printf(out, "%" PRId32, *(const int32_t *)at); break;
    case PROTOBUF_C_TYPE_UINT32: td__text_printf(out, "%" PRIu32, *(const uint32_t *)at); break;
    case PROTOBUF_C_TYPE_INT64: td__text_printf(out, "%" PRId64, *(const int64_t *)at); break;
    case PROTOBUF_C_TYPE_UINT64: td__text_printf(out, "%" PRIu64, *(const uint64_t *)at); break;
    case PROTOBUF_C_TYPE_DOUBLE: td__text_json_number(out, *(const double *)at, 17); break;
    case PROTOBUF_C_TYPE_BOOL:
        td__text_add(out, *(const protobuf_c_boolean *)at ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        e = protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)at);
        if (e)
            td__text_json(out, e->name);
        else
            td__text_printf(out, "%d", *(const int *)at);
        break;
    case PROTOBUF_C_TYPE_STRING: {
        const char *s = *(char *const *)at;

        td__text_json(out, s ? s : "");
        break;
    }
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *m = *(ProtobufCMessage *const *)at;

        if (m)
            td__message_to_json(m, out);
        else
            td__text_add(out, "{}"); /* an entry of a map without its value */
        break;
    }
    default: TD_ASSERT(false, "field %s has no form in JSON", f->name);
    }
}

static void put_map(const ProtobufCFieldDescriptor *f, ProtobufCMessage *const *entries, size_t n,
                    td__text *out)
{
    const ProtobufCMessageDescriptor *d = f->descriptor;

    td__text_add(out, "{");
    for (size_t i = 0; i < n; i++) {
        const char *base = (const char *)entries[i];

        td__text_add(out, i ? ", " : "");
        put_value(&d->fields[0], base + d->fields[0].offset, out);
        td__text_add(out, ": ");
        put_value(&d->fields[1], base + d->fields[1].offset, out);
    }
    td__text_add(out, "}");
}

static void put_repeated(const ProtobufCFieldDescriptor *f, const char *array, size_t n,
                         td__text *out)
{
    td__text_add(out, "[");
    for (size_t i = 0; i < n; i++) {
        td__text_add(out, i ? ", " : "");
        put_value(f, array + i * size_of(f), out);
    }
    td__text_add(out, "]");
}

static bool is_set(const ProtobufCFieldDescriptor *f, const char *base)
{
    static const char zeros[8];
    const void *at = base + f->offset;

    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(const void *)(base + f->quantifier_offset) == f->id;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)(const void *)(base + f->quantifier_offset) > 0;
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        const char *s = *(char *const *)at;

        return s && s[0];
    }
    return memcmp(at, zeros, size_of(f)) != 0;
}

void td__message_to_json(const ProtobufCMessage *m, td__text *out)
{
    const char *base = (const char *)m;
    const char *between = "";

    td__text_add(out, "{");
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const void *at = base + f->offset;

        if (!is_set(f, base))
            continue;
        td__text_add(out, between);
        between = ", ";
        td__text_json(out, f->name);
        td__text_add(out, ": ");
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t n = *(const size_t *)(const void *)(base + f->quantifier_offset);

            if (is_map(f))
                put_map(f, *(ProtobufCMessage *const *const *)at, n, out);
            else
                put_repeated(f, *(const char *const *)at, n, out);
        } else {
            put_value(f, at, out);
        }
    }
    td__text_add(out, "}");
}

/* ---- from JSON ---- */

static td_status wrong(const ProtobufCFieldDescriptor *f)
{
    return TD_FAIL(TD_EPROTO, "field %s has a value of another type", f->name);
}

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "message: out of memory");
}

static td_status fill(td__arena *a, const ProtobufCMessageDescriptor *d, const json_t *j,
                      ProtobufCMessage **out);

static td_status take_enum(const ProtobufCFieldDescriptor *f, const json_t *j, int *out)
{
    const ProtobufCEnumValue *e =
        json_is_string(j)
            ? protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(j))
            : protobuf_c_enum_descriptor_get_value(f->descriptor, (int)json_integer_value(j));

    if (!e)
        return wrong(f);
    *out = e->value;
    return TD_OK;
}

static td_status take_value(td__arena *a, const ProtobufCFieldDescriptor *f, const json_t *j,
                            void *at)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32:
        if (!json_is_integer(j))
            return wrong(f);
        *(int32_t *)at = (int32_t)json_integer_value(j);
        return TD_OK;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        if (!json_is_integer(j))
            return wrong(f);
        *(int64_t *)at = json_integer_value(j);
        return TD_OK;
    case PROTOBUF_C_TYPE_DOUBLE:
        if (!json_is_number(j))
            return wrong(f);
        *(double *)at = json_number_value(j);
        return TD_OK;
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(j))
            return wrong(f);
        *(protobuf_c_boolean *)at = json_is_true(j);
        return TD_OK;
    case PROTOBUF_C_TYPE_ENUM: return take_enum(f, j, at);
    case PROTOBUF_C_TYPE_STRING: {
        char *s = json_is_string(j) ? td__arena_strdup(a, json_string_value(j)) : NULL;

        if (!s)
            return json_is_string(j) ? out_of_memory() : wrong(f);
        *(char **)at = s;
        return TD_OK;
    }
    case PROTOBUF_C_TYPE_MESSAGE: return fill(a, f->descriptor, j, at);
    default: return wrong(f);
    }
}

static td_status take_map(td__arena *a, const ProtobufCFieldDescriptor *f, const json_t *j,
                          ProtobufCMessage **array)
{
    const ProtobufCMessageDescriptor *d = f->descriptor;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)j, key, value)
    {
        ProtobufCMessage *e = td__arena_alloc(a, d->sizeof_message);

        if (!e)
            return out_of_memory();
        protobuf_c_message_init(d, e);
        *(char **)(void *)((char *)e + d->fields[0].offset) = td__arena_strdup(a, key);
        TD_TRY(take_value(a, &d->fields[1], value, (char *)e + d->fields[1].offset));
        *array++ = e;
    }
    return TD_OK;
}

static td_status take_repeated(td__arena *a, const ProtobufCFieldDescriptor *f, const json_t *j,
                               char *base)
{
    bool map = is_map(f);
    size_t n = map ? json_object_size(j) : json_array_size(j);
    char *array = td__arena_alloc(a, n * size_of(f) + 1);

    if (map ? !json_is_object(j) : !json_is_array(j))
        return wrong(f);
    if (!array)
        return out_of_memory();
    if (map)
        TD_TRY(take_map(a, f, j, (ProtobufCMessage **)(void *)array));
    for (size_t i = 0; !map && i < n; i++)
        TD_TRY(take_value(a, f, json_array_get(j, i), array + i * size_of(f)));
    *(size_t *)(void *)(base + f->quantifier_offset) = n;
    *(char **)(void *)(base + f->offset) = array;
    return TD_OK;
}

static td_status fill(td__arena *a, const ProtobufCMessageDescriptor *d, const json_t *j,
                      ProtobufCMessage **out)
{
    ProtobufCMessage *m = td__arena_alloc(a, d->sizeof_message);

    if (!json_is_object(j))
        return TD_FAIL(TD_EPROTO, "%s: not a JSON object", d->name);
    if (!m)
        return out_of_memory();
    protobuf_c_message_init(d, m);
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        const json_t *value = json_object_get(j, f->name);
        char *base = (char *)m;

        if (!value || json_is_null(value))
            continue;
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            TD_TRY(take_repeated(a, f, value, base));
        else
            TD_TRY(take_value(a, f, value, base + f->offset));
        if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
            *(uint32_t *)(void *)(base + f->quantifier_offset) = f->id;
    }
    *out = m;
    return TD_OK;
}

td_status td__message_from_json(td__arena *a, const ProtobufCMessageDescriptor *d, const char *json,
                                size_t nbytes, ProtobufCMessage **out)
{
    json_error_t e;
    json_t *j = json_loadb(json, nbytes, 0, &e);
    td_status st;

    *out = NULL;
    if (!j)
        return TD_FAIL(TD_EPROTO, "%s: malformed JSON: %s", d->name, e.text);
    st = fill(a, d, j, out);
    json_decref(j);
    return st;
}
