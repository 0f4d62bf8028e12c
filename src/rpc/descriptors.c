/* descriptors.c -- reading sets of descriptors: a walk over protobuf's wire format with the few
 * field numbers of descriptor.proto that matter. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/descriptors.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/text.h"

/* Field numbers of descriptor.proto. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    FILE_EXTENSION = 7,
    ANY_NAME = 1, /* of messages, fields, enums, values, services, methods */
    MESSAGE_FIELD = 2,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    MESSAGE_EXTENSION = 6,
    MESSAGE_ONEOF = 8,
    FIELD_JSON_NAME = 10,
    ENUM_VALUE = 2,
    SERVICE_METHOD = 2
};

enum { DEEPEST = 32 }; /* nested messages */

typedef struct file {
    td__descriptor_file pub;
    struct file *next;
} file;

typedef struct symbol {
    const char *name;
    const file *file;
    struct symbol *next;
} symbol;

struct td__descriptors {
    td__arena *arena;
    file *files;
    symbol *symbols; /* a few hundred, looked up once per client: a list will do */
};

/* ---- protobuf's wire format ---- */

typedef struct span {
    const uint8_t *at, *end;
} span;

typedef struct field {
    uint32_t number;
    const uint8_t *begin; /* with its tag */
    span value;           /* of length-delimited fields; else empty */
} field;

static bool read_varint(span *s, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        uint8_t b = *s->at++;

        *v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return true;
    }
    return false;
}

/* 1: a field; 0: the end; -1: malformed. */
static int next_field(span *s, field *f)
{
    uint64_t tag, n;

    if (s->at == s->end)
        return 0;
    *f = (field){.begin = s->at};
    if (!read_varint(s, &tag) || tag >> 3 > UINT32_MAX)
        return -1;
    f->number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case 0: return read_varint(s, &n) ? 1 : -1;
    case 1: n = 8; break;
    case 5: n = 4; break;
    case 2:
        if (!read_varint(s, &n))
            return -1;
        break;
    default: return -1;
    }
    if (n > (uint64_t)(s->end - s->at))
        return -1;
    if ((tag & 7) == 2)
        f->value = (span){s->at, s->at + n};
    s->at += n;
    return 1;
}

static void append_varint(td__text *out, uint64_t v)
{
    do {
        char b = (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));

        td__text_append(out, &b, 1);
        v >>= 7;
    } while (v);
}

/* ---- names ---- */

typedef struct walk {
    td__descriptors *d;
    const file *file;
    td_status st;
} walk;

static td_status malformed(void)
{
    return TD_FAIL(TD_EPROTO, "malformed set of protobuf descriptors");
}

/* "package.Message" + "Nested", in the arena. */
static const char *full_name(walk *w, const char *scope, const span *s)
{
    const char *name = "";
    field f;
    span in = *s;

    while (next_field(&in, &f) == 1)
        if (f.number == ANY_NAME && f.value.at) {
            name = td__arena_printf(w->d->arena, "%s%s%.*s", scope, scope[0] ? "." : "",
                                    (int)(f.value.end - f.value.at), (const char *)f.value.at);
            break;
        }
    if (!name)
        w->st = TD_FAIL(TD_ENOMEM, "descriptors: out of memory");
    return name;
}

static void add_symbol(walk *w, const char *name)
{
    symbol *s = w->st ? NULL : td__arena_alloc(w->d->arena, sizeof *s);

    if (!s) {
        if (!w->st)
            w->st = TD_FAIL(TD_ENOMEM, "descriptors: out of memory");
        return;
    }
    *s = (symbol){name, w->file, w->d->symbols};
    w->d->symbols = s;
}

static void add_one(walk *w, const char *scope, const span *s)
{
    add_symbol(w, full_name(w, scope, s));
}

/* An enum or a service, and its values or methods. Values have the scope of their enum. */
static void add_group(walk *w, const char *scope, const span *s, uint32_t child, bool is_enum)
{
    const char *name = full_name(w, scope, s);
    span in = *s;
    field f;

    add_symbol(w, name);
    while (!w->st && next_field(&in, &f) == 1)
        if (f.number == child && f.value.at)
            add_one(w, is_enum ? scope : name, &f.value);
}

static void add_names(walk *w, const char *scope, const span *s, int depth);

static void add_message(walk *w, const char *scope, const span *s, int depth)
{
    const char *name = full_name(w, scope, s);

    add_symbol(w, name);
    if (depth == DEEPEST)
        w->st = malformed();
    else
        add_names(w, name, s, depth + 1);
}

static void add_names(walk *w, const char *scope, const span *s, int depth)
{
    span in = *s;
    field f;
    int got = 0;

    while (!w->st && (got = next_field(&in, &f)) == 1)
        switch (f.number) {
        case MESSAGE_FIELD: /* fields and oneofs have names of one level only */
        case MESSAGE_EXTENSION:
        case MESSAGE_ONEOF: add_one(w, scope, &f.value); break;
        case MESSAGE_NESTED: add_message(w, scope, &f.value, depth); break;
        case MESSAGE_ENUM: add_group(w, scope, &f.value, ENUM_VALUE, true); break;
        default: break;
        }
    if (got < 0)
        w->st = malformed();
}

static void add_file_names(walk *w, const char *package, const span *s)
{
    span in = *s;
    field f;
    int got = 0;

    while (!w->st && (got = next_field(&in, &f)) == 1)
        switch (f.number) {
        case FILE_MESSAGE: add_message(w, package, &f.value, 0); break;
        case FILE_ENUM: add_group(w, package, &f.value, ENUM_VALUE, true); break;
        case FILE_SERVICE: add_group(w, package, &f.value, SERVICE_METHOD, false); break;
        case FILE_EXTENSION: add_one(w, package, &f.value); break;
        default: break;
        }
    if (got < 0)
        w->st = malformed();
}

/* ---- without the names in JSON ---- */

/* What a message of descriptor.proto is, as far as fields of messages may lie in it. */
typedef enum kind { KIND_FILE, KIND_MESSAGE, KIND_FIELD, KIND_OTHER } kind;

static kind kind_of_child(kind parent, uint32_t number)
{
    if (parent == KIND_FILE)
        return number == FILE_MESSAGE     ? KIND_MESSAGE
               : number == FILE_EXTENSION ? KIND_FIELD
                                          : KIND_OTHER;
    if (parent == KIND_MESSAGE)
        return number == MESSAGE_FIELD || number == MESSAGE_EXTENSION ? KIND_FIELD
               : number == MESSAGE_NESTED                             ? KIND_MESSAGE
                                                                      : KIND_OTHER;
    return KIND_OTHER;
}

/* Copy a message, without field 10 of its fields. Sizes of what encloses them are written anew. */
static bool strip(td__text *out, kind what, span in, int depth)
{
    field f;
    int got;

    if (depth > DEEPEST)
        return false;
    while ((got = next_field(&in, &f)) == 1) {
        kind child = f.value.at ? kind_of_child(what, f.number) : KIND_OTHER;

        if (what == KIND_FIELD && f.number == FIELD_JSON_NAME)
            continue;
        if (child == KIND_OTHER) {
            td__text_append(out, (const char *)f.begin, (size_t)(in.at - f.begin));
        } else {
            td__text part = {0};
            bool good = strip(&part, child, f.value, depth + 1);

            append_varint(out, (uint64_t)f.number << 3 | 2);
            append_varint(out, part.used);
            td__text_append(out, part.data ? part.data : "", part.used);
            out->failed = out->failed || part.failed;
            td__text_fini(&part);
            if (!good)
                return false;
        }
    }
    return got == 0;
}

/* ---- files ---- */

static td_status add_file(td__descriptors *d, const span *s)
{
    td__text bytes = {0};
    span in = *s;
    field f;
    file *new = td__arena_alloc(d->arena, sizeof *new);
    const char *package = "";
    uint8_t *data = NULL;
    walk w = {.d = d, .file = new};

    while (next_field(&in, &f) == 1) {
        char *text = f.number == FILE_NAME || f.number == FILE_PACKAGE
                         ? td__arena_printf(d->arena, "%.*s", (int)(f.value.end - f.value.at),
                                            f.value.at ? (const char *)f.value.at : "")
                         : NULL;

        if (f.number == FILE_NAME && new)
            new->pub.name = text;
        else if (f.number == FILE_PACKAGE)
            package = text;
    }
    if (!strip(&bytes, KIND_FILE, *s, 0))
        w.st = malformed();
    else if (!bytes.failed)
        data = td__arena_alloc(d->arena, bytes.used + 1);
    if (!w.st && (!new || !new->pub.name || !package || !data))
        w.st = TD_FAIL(TD_ENOMEM, "descriptors: out of memory, or a file without a name");
    if (!w.st) {
        memcpy(data, bytes.data ? bytes.data : "", bytes.used);
        new->pub.data = data;
        new->pub.nbytes = bytes.used;
        add_file_names(&w, package, s);
        new->next = d->files;
        d->files = new;
    }
    td__text_fini(&bytes);
    return w.st;
}

td_status td__descriptors_create(td__descriptors **out)
{
    td__descriptors *d = td__calloc(1, sizeof *d);
    td_status st;

    *out = NULL;
    if (!d)
        return TD_FAIL(TD_ENOMEM, "descriptors: out of memory");
    st = td__arena_create(&d->arena);
    if (st) {
        td__free(d);
        return st;
    }
    *out = d;
    return TD_OK;
}

void td__descriptors_destroy(td__descriptors *d)
{
    if (!d)
        return;
    td__arena_destroy(d->arena);
    td__free(d);
}

td_status td__descriptors_add(td__descriptors *d, const uint8_t *set, size_t nbytes)
{
    span in = {set, set + nbytes};
    field f;
    int got;

    while ((got = next_field(&in, &f)) == 1)
        if (f.number == SET_FILE && f.value.at)
            TD_TRY(add_file(d, &f.value));
    return got < 0 ? malformed() : TD_OK;
}

const td__descriptor_file *td__descriptors_by_name(const td__descriptors *d, const char *name)
{
    for (const file *f = d->files; f; f = f->next)
        if (!strcmp(f->pub.name, name))
            return &f->pub;
    return NULL;
}

const td__descriptor_file *td__descriptors_by_symbol(const td__descriptors *d, const char *name)
{
    for (const symbol *s = d->symbols; s; s = s->next)
        if (!strcmp(s->name, name))
            return &s->file->pub;
    return NULL;
}
