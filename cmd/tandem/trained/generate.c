/* generate.c -- `tandem generate`: text from a trained language model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/generate.h"

#include <stdlib.h>

#include "base/fail.h"
#include "session.h"

enum { LENGTH = 200, MOST_LENGTH = 10000000, MOST_K = 1 << 20 };

static td_status put(void *user, const char *text, size_t nbytes)
{
    (void)user;
    if (fwrite(text, 1, nbytes, stdout) != nbytes || fflush(stdout) != 0)
        return TD_FAIL(TD_EIO, "cannot write to standard output");
    return TD_OK;
}

static td_status take_temperature(const td__args *a, double *out)
{
    const char *given = td__args_value(a, "temperature");
    char *end;

    *out = given ? strtod(given, &end) : 1;
    if (given && (end == given || *end || !(*out >= 0 && *out <= 100)))
        return TD_FAIL(TD_EINVAL, "--temperature: expected a number from 0 to 100, found '%.60s'",
                       given);
    return TD_OK;
}

static td_status generate(td__session *s, const td__args *a, td__generate_opts *o)
{
    td__checkpoint_info info;

    TD_TRY(take_temperature(a, &o->temperature));
    s->sample_only = true;
    TD_TRY(td__args_trained(s, a, &info));
    TD_TRY(td__generate(s, o, put, NULL));
    return put(NULL, "\n", 1);
}

static int run(const td__args *a)
{
    td__session s = {0};
    long length, top_k, seed;

    if (!td__args_int(a, "length", 1, MOST_LENGTH, LENGTH, &length) ||
        !td__args_int(a, "top-k", 0, MOST_K, 0, &top_k) ||
        !td__args_int(a, "seed", 0, INT32_MAX, 0, &seed))
        return TD_EXIT_USAGE;
    const char *prompt = td__args_value(a, "prompt");
    td__generate_opts o = {
        .prompt = prompt ? prompt : "", .tokens = length, .top_k = top_k, .seed = (uint64_t)seed};
    td_status st = generate(&s, a, &o);
    int rc = st ? td__failure(a, st) : TD_EXIT_OK;
    td__session_fini(&s);
    return rc;
}

static const td__flag FLAGS[] = {
    {.name = "prompt",
     .letter = 'p',
     .value = "TEXT",
     .help = "what the text begins with; of a model of tokens, ids: '464 3290'"},
    {.name = "length", .value = "N", .help = "characters, or tokens, to generate (200)"},
    {.name = "temperature",
     .value = "T",
     .help = "below 1: likelier characters more often; 0: always the likeliest (1)"},
    {.name = "top-k", .value = "K", .help = "draw among the K likeliest characters (all)"},
    {.name = "seed", .value = "N", .help = "another seed, another text (0)"},
    TD_FLAG_CHECKPOINT,
    TD_FLAG_SET,
    TD_FLAG_THREADS,
    {.name = NULL}};

static const char *const EXAMPLES[] = {
    "tandem generate runs/shakespeare-gpt-0001 --prompt 'ROMEO:' --temperature 0.8",
    "a page of something like Shakespeare", "tandem generate runs/gpt-0001 --seed 2 --top-k 20",
    "another text, without unlikely characters", NULL};

const td__command td__command_generate = {
    .name = "generate",
    .args = "RUN|JOB.yaml",
    .summary = "generate text with a trained language model",
    .text = "Continues the prompt with a model that was trained on a text (data.source: text), "
            "character by character, or byte by byte. A model of token ids (data.source: tokens) "
            "takes ids and gives ids; words are the tokenizer's. The run is enough: the training "
            "data are not needed. The same seed gives the same text.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
