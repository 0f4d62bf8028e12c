/* generate.c -- see generate.h. The sample of the session is filled in place: tokens from its
 * beginning on, and zeros behind them, which a model that looks back only does not see. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/rng.h"
#include "data/table.h"
#include "tandem/tensor.h"

#define BLANKS " ,\t\r\n"
enum { STREAM = 0x67656e }; /* of random numbers: no other consumer has it */

typedef struct choice {
    float score;
    int32_t token;
} choice;

typedef struct writer {
    const td__generate_opts *o;
    td__table *sample;  /* as the source gives it, to fill in */
    td__dataset *input; /* the same after the stages */
    const td__field *x;
    bool ids;                  /* tokens are numbers, not characters or bytes */
    int64_t context, vocab, n; /* n: tokens so far */
    int32_t *tokens;           /* (context): the last ones */
    choice *choices;           /* (vocab) */
    float *scores;             /* (context, vocab) */
    td_dtype dtype;
    td_shape row;
} writer;

/* ---- Tokens ---------------------------------------------------------------------------------- */

static void push(writer *w, int32_t token)
{
    if (w->n >= w->context)
        memmove(w->tokens, w->tokens + 1, (size_t)(w->context - 1) * sizeof *w->tokens);
    w->tokens[w->n < w->context ? w->n : w->context - 1] = token;
    w->n++;
}

/* Bytes of the UTF-8 character at p; 1 where it is none. */
static size_t char_length(const char *p)
{
    unsigned char c = (unsigned char)*p;
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

    for (size_t i = 1; i < n; i++)
        if (((unsigned char)p[i] & 0xc0) != 0x80)
            return 1;
    return n;
}

static int32_t find_token(const writer *w, const char *p, size_t nbytes)
{
    if (!w->x->class_names)
        return (unsigned char)*p;
    for (int64_t k = 0; k < w->vocab; k++)
        if (strlen(w->x->class_names[k]) == nbytes && !memcmp(w->x->class_names[k], p, nbytes))
            return (int32_t)k;
    return -1;
}

/* Of a model of token ids: numbers with blanks or commas between. */
static td_status read_ids(writer *w)
{
    const char *p = w->o->prompt;

    for (p += strspn(p, BLANKS); *p; p += strspn(p, BLANKS)) {
        char *end;
        errno = 0;
        long long id = strtoll(p, &end, 10);
        bool whole = end != p && (!*end || strchr(BLANKS, *end));
        if (!whole || errno || id < 0 || id >= w->vocab)
            return TD_FAIL(TD_EINVAL,
                           "prompt: expected the ids of tokens, 0 to %" PRId64 ", found '%.*s'",
                           w->vocab - 1, (int)strcspn(p, BLANKS), p);
        push(w, (int32_t)id);
        p = end;
    }
    if (!w->n)
        return TD_FAIL(TD_EINVAL, "prompt: this model was trained on token ids (data.source: "
                                  "tokens): begin with some, such as --prompt '464 3290'");
    return TD_OK;
}

static td_status read_prompt(writer *w)
{
    const char *p = w->o->prompt;

    for (size_t n; *p; p += n) {
        n = w->x->class_names ? char_length(p) : 1;
        int32_t token = find_token(w, p, n);
        if (token < 0)
            return TD_FAIL(TD_EINVAL,
                           "prompt: the character '%.*s' does not occur in the text that the model "
                           "was trained on",
                           (int)n, p);
        push(w, token);
    }
    if (!w->n) {
        int32_t line = find_token(w, "\n", 1);
        push(w, line < 0 ? 0 : line);
    }
    return TD_OK;
}

/* ---- One step -------------------------------------------------------------------------------- */

static td_status take_scores(void *user, int64_t first, int64_t rows, const void *output,
                             size_t row_nbytes)
{
    writer *w = user;
    td_tensor from, to;
    td_shape all = TD_SHAPE(w->context, w->vocab);

    (void)first;
    (void)row_nbytes;
    if (rows != 1 || td_shape_count(&w->row) != td_shape_count(&all))
        return TD_FAIL(TD_EINVAL,
                       "this is not a language model: it does not give one value per token of the "
                       "vocabulary at every position");
    TD_TRY(td_tensor_wrap(&from, w->dtype, all, (void *)(uintptr_t)output));
    TD_TRY(td_tensor_wrap(&to, TD_F32, all, w->scores));
    return td_tensor_copy(&from, &to);
}

/* The tokens so far as the sample, whatever type it has. */
static void fill_sample(const writer *w)
{
    int64_t n = w->n < w->context ? w->n : w->context;

    for (int64_t i = 0; i < w->context; i++) {
        int32_t token = i < n ? w->tokens[i] : 0;
        if (w->x->dtype == TD_U8)
            ((uint8_t *)w->sample->column[0])[i] = (uint8_t)token;
        else if (w->x->dtype == TD_I64)
            ((int64_t *)(void *)w->sample->column[0])[i] = token;
        else
            ((int32_t *)(void *)w->sample->column[0])[i] = token;
    }
}

static int by_score(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : x->token < y->token ? -1 : 1;
}

/* Draws by exp(score / temperature) among the likeliest. */
static int32_t draw(const writer *w, const float *scores)
{
    int64_t n = w->vocab;
    double sum = 0, at;
    td__rng_key key = {.seed = w->o->seed, .stream = STREAM, .step = (uint32_t)w->n};

    for (int64_t k = 0; k < n; k++)
        w->choices[k] = (choice){scores[k], (int32_t)k};
    qsort(w->choices, (size_t)n, sizeof *w->choices, by_score);
    if (w->o->temperature == 0)
        return w->choices[0].token;
    n = w->o->top_k && w->o->top_k < n ? w->o->top_k : n;
    for (int64_t k = 0; k < n; k++)
        sum += exp((double)(w->choices[k].score - w->choices[0].score) / w->o->temperature);
    at = sum * (double)td__rng_uniform(&key, 0);
    for (int64_t k = 0; k < n; k++) {
        at -= exp((double)(w->choices[k].score - w->choices[0].score) / w->o->temperature);
        if (at < 0)
            return w->choices[k].token;
    }
    return w->choices[0].token;
}

static td_status next_token(td__session *s, writer *w, int32_t *out)
{
    int64_t last = w->n < w->context ? w->n - 1 : w->context - 1;

    fill_sample(w);
    TD_TRY(td__trainer_predict(s->trainer, w->input, take_scores, w, &w->dtype, &w->row));
    *out = draw(w, w->scores + last * w->vocab);
    return TD_OK;
}

/* A token as people read it. */
static td_status put(const writer *w, int32_t token, td__generate_sink sink, void *user)
{
    const char byte = (char)token, *text = w->x->class_names ? w->x->class_names[token] : &byte;
    char id[16];

    if (!w->ids)
        return sink(user, text, w->x->class_names ? strlen(text) : 1);
    snprintf(id, sizeof id, " %" PRId32, token);
    return sink(user, id, strlen(id));
}

static td_status write_all(td__session *s, writer *w, td__generate_sink sink, void *user)
{
    TD_TRY(w->ids ? read_ids(w) : read_prompt(w));
    TD_TRY(sink(user, w->o->prompt, strlen(w->o->prompt)));
    for (int64_t i = 0; i < w->o->tokens; i++) {
        int32_t token;
        TD_TRY(next_token(s, w, &token));
        push(w, token);
        TD_TRY(put(w, token, sink, user));
    }
    return TD_OK;
}

td_status td__generate(td__session *s, const td__generate_opts *o, td__generate_sink sink,
                       void *user)
{
    td__dataset *d = td__data_source_part(s->data, TD_PART_TEST);
    const td__field *x = d ? &d->fields[0] : NULL;
    writer w = {
        .o = o, .sample = (td__table *)d, .input = td__data_part(s->data, TD_PART_TEST), .x = x};
    td_status st = TD_OK;

    const char *source = td__job_data(s->job)->source;
    w.ids = strcmp(source, "tokens") == 0;
    if ((!w.ids && strcmp(source, "text") != 0) || !x || x->shape.ndim != 1)
        return TD_FAIL(TD_EINVAL,
                       "this model was trained on %s data; text needs a model trained with "
                       "data.source: text, or tokens",
                       source);
    w.context = x->shape.dim[0];
    w.vocab = x->classes;
    w.tokens = td__calloc((size_t)w.context, sizeof *w.tokens);
    w.choices = td__calloc((size_t)w.vocab + 1, sizeof *w.choices);
    w.scores = td__calloc((size_t)(w.context * w.vocab) + 1, sizeof *w.scores);
    if (w.tokens && w.choices && w.scores)
        st = write_all(s, &w, sink, user);
    else
        st = TD_FAIL(TD_ENOMEM, "no memory to generate text");
    td__free(w.scores);
    td__free(w.choices);
    td__free(w.tokens);
    return st;
}
