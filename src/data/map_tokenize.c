/* map_tokenize.c -- texts (bytes, padded with 0) as numbers: 0 is padding.
 *
 *     byte   the bytes themselves
 *     char   the bytes that occur in train, numbered from 2 in rising order; 1: any other
 *     word   the words of train by frequency (words.h), size2 of them; 1: any other
 *
 * size is the length; by default that of the text, and for words 32. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/map.h"
#include "data/words.h"

enum { DEFAULT_WORDS = 32, MAX_SIZE = 1 << 24 };

typedef struct state {
    int64_t length;   /* of a text in bytes */
    td__words *words; /* NULL for byte and char */
    int32_t ids[256]; /* byte and char */
    bool seen[256];
} state;

static size_t text_bytes(const char *text, int64_t length)
{
    return strnlen(text, (size_t)length);
}

static td_status see(void *context, int64_t begin, int64_t n, const void *x)
{
    state *s = context;

    (void)begin;
    for (int64_t i = 0; i < n; i++) {
        const char *text = (const char *)x + i * s->length;
        size_t nbytes = text_bytes(text, s->length);
        if (s->words)
            TD_TRY(td__words_add(s->words, text, nbytes));
        for (size_t k = 0; k < nbytes; k++)
            s->seen[(uint8_t)text[k]] = true;
    }
    return TD_OK;
}

static td_status tokenize_open(td__map *m, td__dataset *train)
{
    const char *unit = m->opts.text ? m->opts.text : "word";
    bool byte = strcmp(unit, "byte") == 0, word = strcmp(unit, "word") == 0;

    if (!byte && !word && strcmp(unit, "char") != 0)
        return TD_FAIL(TD_EINVAL, "tokenize: unit is '%s', expected byte, char or word", unit);
    if (m->in.dtype != TD_U8 || m->in.shape.ndim != 1)
        return TD_FAIL(TD_EINVAL, "tokenize: field %s is not a text", m->in.name);
    int64_t length = m->in.shape.dim[0];
    m->opts.size = m->opts.size ? m->opts.size : word ? DEFAULT_WORDS : length;
    if (m->opts.size < 1 || m->opts.size > MAX_SIZE)
        return TD_FAIL(TD_EINVAL, "tokenize: size is %" PRId64 ", expected 1 to %d", m->opts.size,
                       MAX_SIZE);
    if (m->opts.size2 < 0 || (m->opts.size2 && m->opts.size2 <= TD__WORD_FIRST))
        return TD_FAIL(TD_EINVAL, "tokenize: size2 is %" PRId64 ", expected more than %d",
                       m->opts.size2, TD__WORD_FIRST);
    state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for tokenize");
    m->state = s;
    s->length = length;
    if (word)
        TD_TRY(td__words_create(&s->words));
    TD_TRY(td__map_walk(train, m->field, byte ? 0 : INT64_MAX, see, s));
    int32_t next = TD__WORD_FIRST;
    for (int c = 0; c < 256; c++)
        s->ids[c] = byte ? c : s->seen[c] ? next++ : TD__WORD_UNKNOWN;
    if (word)
        TD_TRY(td__words_rank(s->words, m->opts.size2));
    m->out.dtype = TD_I32;
    m->out.shape = TD_SHAPE(m->opts.size);
    m->out.classes = byte ? 256 : word ? td__words_count(s->words) : next;
    return TD_OK;
}

static void tokenize_close(td__map *m)
{
    td__words_destroy(((state *)m->state)->words);
}

static void tokenize_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                           const void *x, void *y)
{
    const state *s = m->state;
    int64_t size = m->opts.size;

    (void)index;
    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        const char *text = (const char *)x + i * s->length;
        int32_t *out = (int32_t *)y + i * size;
        int64_t nbytes = (int64_t)text_bytes(text, s->length);
        if (s->words) {
            td__words_encode(s->words, text, (size_t)nbytes, out, size);
            continue;
        }
        for (int64_t k = 0; k < size; k++)
            out[k] = k < nbytes ? s->ids[(uint8_t)text[k]] : TD__WORD_PAD;
    }
}

const td__map_def td__map_tokenize = {
    .name = "tokenize",
    .help = "text to ids of its bytes, chars or words, padded or truncated to size; 0 is padding",
    .reads = "text size size2",
    .open = tokenize_open,
    .close = tokenize_close,
    .apply = tokenize_apply,
};
