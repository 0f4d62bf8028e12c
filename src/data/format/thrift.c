/* thrift.c -- see thrift.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format/thrift.h"

enum { YES = 1, NO = 2, BYTE = 3, I16 = 4, I32 = 5, I64 = 6, DOUBLE = 7, SET = 10, MAP = 11 };
enum { MOST_DEPTH = 32 };

static int64_t number(td__bytes *b)
{
    uint64_t v = td__bytes_varint(b);

    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* A field, or an item of a list: a number or text. */
static void take_item(td__bytes *b, int type, td__thrift_field *f)
{
    f->type = type;
    switch (type) {
    case YES:
    case NO: f->i = type == YES; break;
    case BYTE: f->i = (int64_t)td__bytes_little(b, 1); break; /* none that is read is below 0 */
    case I16:
    case I32:
    case I64: f->i = number(b); break;
    case DOUBLE: td__bytes_little(b, 8); break;
    case TD_THRIFT_BINARY:
        f->nbytes = td__bytes_varint(b);
        f->text = td__bytes_take(b, f->nbytes);
        break;
    case TD_THRIFT_LIST:
    case SET: {
        uint64_t head = td__bytes_little(b, 1);
        f->item = (int)(head & 15);
        f->n = head >> 4 == 15 ? td__bytes_varint(b) : head >> 4;
        if (f->n > (uint64_t)(b->end - b->p))
            b->bad = true; /* an item has a byte at least */
        break;
    }
    case TD_THRIFT_STRUCT: break;
    default: b->bad = true;
    }
}

bool td__thrift_next(td__bytes *b, int *last, td__thrift_field *f)
{
    uint64_t head = td__bytes_little(b, 1);

    *f = (td__thrift_field){0};
    if (b->bad || !head)
        return false;
    f->id = (int16_t)(head >> 4 ? *last + (int)(head >> 4) : number(b));
    *last = f->id;
    take_item(b, (int)(head & 15), f);
    return !b->bad;
}

static void skip(td__bytes *b, const td__thrift_field *f, int depth)
{
    td__thrift_field in;
    int last = 0;

    if (depth > MOST_DEPTH)
        b->bad = true;
    if (f->type == TD_THRIFT_STRUCT) {
        while (!b->bad && td__thrift_next(b, &last, &in))
            skip(b, &in, depth + 1);
    } else if (f->type == TD_THRIFT_LIST || f->type == SET) {
        for (uint64_t i = 0; i < f->n && !b->bad; i++) {
            in = (td__thrift_field){0};
            if (f->item == YES || f->item == NO)
                td__bytes_take(b, 1);
            else
                take_item(b, f->item, &in);
            if (f->item >= TD_THRIFT_LIST)
                skip(b, &in, depth + 1);
        }
    }
}

void td__thrift_skip(td__bytes *b, const td__thrift_field *f)
{
    skip(b, f, 0);
}
