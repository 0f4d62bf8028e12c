/* words.c -- words of texts as numbers; see words.h. An open hash table of words in an arena. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/words.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { FIRST_SLOTS = 1024, WORD_MAX = 64 /* bytes; longer words are cut */ };

typedef struct entry {
    const char *word; /* NULL: free */
    int64_t count;
    int32_t id;
} entry;

struct td__words {
    td__arena *arena;
    entry *slots;
    size_t n_slots; /* a power of two */
    int64_t used;
    int64_t ids;
};

/* Where the texts stand, and the next word in lower case; false at the end. */
typedef struct cursor {
    const char *p, *end;
} cursor;

static bool in_word(unsigned char c)
{
    return isalnum(c) || c == '\'' || c > 127;
}

static bool next_word(cursor *c, char word[WORD_MAX + 1])
{
    size_t n = 0;

    while (c->p < c->end && !in_word((unsigned char)*c->p))
        c->p++;
    for (; c->p < c->end && in_word((unsigned char)*c->p); c->p++)
        if (n < WORD_MAX)
            word[n++] = (char)(*c->p >= 'A' && *c->p <= 'Z' ? *c->p + ('a' - 'A') : *c->p);
    word[n] = 0;
    return n > 0;
}

/* FNV-1a */
static size_t hash(const char *s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return (size_t)(h ^ h >> 32);
}

static entry *find(const td__words *w, const char *word)
{
    size_t i = hash(word) & (w->n_slots - 1);

    while (w->slots[i].word && strcmp(w->slots[i].word, word) != 0)
        i = (i + 1) & (w->n_slots - 1);
    return &w->slots[i];
}

static td_status resize(td__words *w, size_t n_slots)
{
    entry *old = w->slots;
    size_t n_old = w->n_slots;

    w->slots = td__calloc(n_slots, sizeof *w->slots);
    if (!w->slots) {
        w->slots = old;
        return TD_FAIL(TD_ENOMEM, "no memory for %zu words", n_slots);
    }
    w->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].word)
            *find(w, old[i].word) = old[i];
    td__free(old);
    return TD_OK;
}

td_status td__words_create(td__words **out)
{
    td_status st = TD_OK;

    *out = NULL;
    td__words *w = td__calloc(1, sizeof *w);
    if (!w)
        return TD_FAIL(TD_ENOMEM, "no memory for words");
    TD_TRY_OR(st, fail, td__arena_create(&w->arena));
    TD_TRY_OR(st, fail, resize(w, FIRST_SLOTS));
    *out = w;
    return TD_OK;
fail:
    td__words_destroy(w);
    return st;
}

void td__words_destroy(td__words *w)
{
    if (!w)
        return;
    td__free(w->slots);
    td__arena_destroy(w->arena);
    td__free(w);
}

td_status td__words_add(td__words *w, const char *text, size_t nbytes)
{
    cursor c = {text, text + nbytes};
    char word[WORD_MAX + 1];

    while (next_word(&c, word)) {
        if ((size_t)w->used * 2 >= w->n_slots)
            TD_TRY(resize(w, w->n_slots * 2));
        entry *e = find(w, word);
        if (!e->word) {
            e->word = td__arena_strdup(w->arena, word);
            if (!e->word)
                return TD_FAIL(TD_ENOMEM, "no memory for words");
            w->used++;
        }
        e->count++;
    }
    return TD_OK;
}

static int by_frequency(const void *pa, const void *pb)
{
    const entry *a = *(const entry *const *)pa, *b = *(const entry *const *)pb;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return strcmp(a->word, b->word);
}

td_status td__words_rank(td__words *w, int64_t vocab)
{
    int64_t n = 0;
    entry **all = td__calloc((size_t)w->used + 1, sizeof(entry *));

    if (!all)
        return TD_FAIL(TD_ENOMEM, "no memory to sort words");
    for (size_t i = 0; i < w->n_slots; i++)
        if (w->slots[i].word)
            all[n++] = &w->slots[i];
    qsort(all, (size_t)n, sizeof(entry *), by_frequency);
    w->ids = TD__WORD_FIRST;
    for (int64_t i = 0; i < n; i++)
        all[i]->id = vocab && w->ids >= vocab ? TD__WORD_UNKNOWN : (int32_t)w->ids++;
    td__free(all);
    return TD_OK;
}

td_status td__words_append(td__words *w, const char *word, bool *ok)
{
    size_t n = strlen(word);

    *ok = false;
    if (n < 1 || n > WORD_MAX || w->ids == INT32_MAX)
        return TD_OK;
    if ((size_t)w->used * 2 >= w->n_slots)
        TD_TRY(resize(w, w->n_slots * 2));
    entry *e = find(w, word);
    if (e->word)
        return TD_OK;
    e->word = td__arena_strdup(w->arena, word);
    if (!e->word)
        return TD_FAIL(TD_ENOMEM, "no memory for words");
    e->id = (int32_t)w->ids++;
    w->used++;
    *ok = true;
    return TD_OK;
}

int64_t td__words_count(const td__words *w)
{
    return w->ids;
}

void td__words_encode(const td__words *w, const char *text, size_t nbytes, int32_t *out, int64_t n)
{
    cursor c = {text, text + nbytes};
    char word[WORD_MAX + 1];
    int64_t i = 0;

    for (; i < n && next_word(&c, word); i++) {
        const entry *e = find(w, word);
        out[i] = e->word ? e->id : TD__WORD_UNKNOWN;
    }
    for (; i < n; i++)
        out[i] = TD__WORD_PAD;
}

td_status td__words_names(const td__words *w, td__arena *arena, const char *const **out)
{
    const char **names = td__arena_alloc(arena, (size_t)w->ids * sizeof *names);

    *out = NULL;
    if (!names)
        return TD_FAIL(TD_ENOMEM, "no memory for words");
    names[TD__WORD_PAD] = "<pad>";
    names[TD__WORD_UNKNOWN] = "<unknown>";
    for (size_t i = 0; i < w->n_slots; i++)
        if (w->slots[i].word && w->slots[i].id >= TD__WORD_FIRST) {
            char *copy = td__arena_strdup(arena, w->slots[i].word);
            if (!copy)
                return TD_FAIL(TD_ENOMEM, "no memory for words");
            names[w->slots[i].id] = copy;
        }
    *out = names;
    return TD_OK;
}
