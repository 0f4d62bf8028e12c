/* map_tokenize.c -- texts (bytes, padded with 0) as numbers: 0 is padding.
 *
 *     byte   the bytes themselves
 *     char   the bytes that occur in train, numbered from 2 in rising order; 1: any other
 *     lower  the same of texts in small letters (of ASCII)
 *     word   the words of train by frequency (words.h), size2 of them; 1: any other
 *
 * size is the length; by default that of the text, and for words 32. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/fit_json.h"
#include "data/map.h"
#include "data/words.h"

enum { DEFAULT_WORDS = 32, MAX_SIZE = 1 << 24 };

typedef struct state {
    int64_t length;   /* of a text in bytes */
    td__words *words; /* NULL for byte and char */
    int32_t ids[256]; /* not of words */
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

static bool is_unit(const td__map *m, const char *unit)
{
    return strcmp(m->opts.text ? m->opts.text : "word", unit) == 0;
}

/* Everything but what train decides. */
static td_status prepare(td__map *m, state **out)
{
    bool word = is_unit(m, "word");

    if (!word && !is_unit(m, "byte") && !is_unit(m, "char") && !is_unit(m, "lower"))
        return TD_FAIL(TD_EINVAL, "tokenize: unit is '%s', expected byte, char, lower or word",
                       m->opts.text);
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
    m->state = *out = s;
    s->length = length;
    return word ? td__words_create(&s->words) : TD_OK;
}

/* Numbers of bytes and chars, by what was seen. */
static void describe(td__map *m)
{
    state *s = m->state;
    bool byte = is_unit(m, "byte"), lower = is_unit(m, "lower");
    int32_t next = TD__WORD_FIRST;

    for (int c = 'A'; lower && c <= 'Z'; c++) {
        s->seen[c + 'a' - 'A'] |= s->seen[c];
        s->seen[c] = false;
    }
    for (int c = 0; c < 256; c++)
        s->ids[c] = byte ? c : s->seen[c] ? next++ : TD__WORD_UNKNOWN;
    for (int c = 'A'; lower && c <= 'Z'; c++)
        s->ids[c] = s->ids[c + 'a' - 'A'];
    m->out.dtype = TD_I32;
    m->out.shape = TD_SHAPE(m->opts.size);
    m->out.classes = byte ? 256 : s->words ? td__words_count(s->words) : next;
}

static td_status tokenize_open(td__map *m, td__dataset *train)
{
    state *s;

    TD_TRY(prepare(m, &s));
    TD_TRY(td__map_walk(train, m->field, is_unit(m, "byte") ? 0 : INT64_MAX, see, s));
    if (s->words)
        TD_TRY(td__words_rank(s->words, m->opts.size2));
    describe(m);
    return TD_OK;
}

/* The words by number, or which bytes occur. */
static json_t *tokenize_save(const td__map *m)
{
    const state *s = m->state;
    json_t *list = json_array();
    td__arena *arena;
    const char *const *names;

    for (int c = 0; !s->words && c < 256; c++)
        if (s->seen[c])
            json_array_append_new(list, json_integer(c));
    if (!s->words)
        return json_pack("{s:o}", "bytes", list);
    if (td__arena_create(&arena))
        return NULL;
    td_status st = td__words_names(s->words, arena, &names);
    for (int64_t i = TD__WORD_FIRST; !st && i < td__words_count(s->words); i++)
        json_array_append_new(list, td__fit_save_text(names[i], strlen(names[i])));
    td__arena_destroy(arena);
    return st ? NULL : json_pack("{s:o}", "words", list);
}

static td_status load_words(state *s, const td__fit *where, const json_t *list)
{
    td__arena *arena;
    bool ok = json_is_array(list);
    td_status st = TD_OK;

    TD_TRY(td__arena_create(&arena));
    TD_TRY_OR(st, done, td__words_rank(s->words, 0)); /* numbers begin after padding and other */
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const char *word = td__fit_load_text(json_array_get(list, i), arena, NULL);
        ok = word != NULL;
        if (word)
            TD_TRY_OR(st, done, td__words_append(s->words, word, &ok));
    }
    if (!ok)
        st = td__fit_bad(where, "the words of tokenize");
done:
    td__arena_destroy(arena);
    return st;
}

static td_status tokenize_open_fitted(td__map *m, const td__fit *where, const json_t *from)
{
    const json_t *bytes = json_object_get(from, "bytes");
    state *s;

    TD_TRY(prepare(m, &s));
    if (s->words)
        TD_TRY(load_words(s, where, json_object_get(from, "words")));
    else if (!json_is_array(bytes))
        return td__fit_bad(where, "the characters of tokenize");
    for (size_t i = 0; i < json_array_size(bytes); i++) {
        json_int_t c = json_integer_value(json_array_get(bytes, i));
        if (c < 0 || c > 255)
            return td__fit_bad(where, "the characters of tokenize");
        s->seen[c] = true;
    }
    describe(m);
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
    .save = tokenize_save,
    .open_fitted = tokenize_open_fitted,
    .close = tokenize_close,
    .apply = tokenize_apply,
};
