/* algorithm.c -- shipped algorithms; see algorithm.h.
 *
 * intent-classification, the book's: a text is the mean of trained vectors of its characters (64),
 * then three linear layers without activations, FC_SIZE wide. SGD with the gradient's norm clipped
 * at 0.1, a tenth of the learning rate when the validation loss stops falling; a tenth of the data
 * for the test and a twentieth of the rest for validation. Trained on examples.csv of the data
 * set's version: text and label id, quoted, without a header.
 *
 * intent-classification-torch, the book's too, is the same model and training: only its image packs
 * the result for TorchServe as well.
 *
 * Against the book's code: weights begin as our layers' do (uniform by fan-in, not in +-0.5), the
 * rate falls by the loss instead of the accuracy, characters are bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/algorithm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/key.h"

typedef struct parameter {
    const char *name;
    double lo, hi, otherwise;
    bool whole;
} parameter;

enum { MOST_PARAMETERS = 8 };

struct td__algorithm {
    const char *name;
    parameter parameters[MOST_PARAMETERS]; /* ends with a name of NULL */
    void (*write)(const double *values, const char *data, td__text *out);
};

enum { LR, EPOCHS, BATCH_SIZE, FC_SIZE };

static void write_intents(const double *v, const char *data, td__text *out)
{
    td__text_printf(out,
                    "name: intent-classification\n"
                    "model:\n"
                    "- {bag: 64, padding: 0}\n"
                    "- linear: %.0f\n"
                    "- linear: %.0f\n"
                    "- linear\n"
                    "metrics: [accuracy]\n"
                    "data:\n"
                    "  source: csv\n"
                    "  dir: ",
                    v[FC_SIZE], v[FC_SIZE]);
    td__text_json(out, data);
    td__text_printf(out,
                    "\n"
                    "  train: examples.csv\n"
                    "  header: false\n"
                    "  label: c1\n"
                    "  split: {valid: 0.045, test: 0.1}\n"
                    "  maps: [{map: tokenize, unit: lower}]\n"
                    "train:\n"
                    "  batch: %.0f\n"
                    "  epochs: %.0f\n"
                    "  optimizer: {name: sgd, lr: %.9g}\n"
                    "  clip: 0.1\n"
                    "  schedule: {name: plateau, gamma: 0.1, patience: 1}\n",
                    v[BATCH_SIZE], v[EPOCHS], v[LR]);
}

#define INTENTS "intent-classification"

static const td__algorithm ALGORITHMS[] = {
#define ROW(name)                                             \
    {                                                         \
        name,                                                 \
            {[LR] = {"LR", 1e-9, 1e6, 5, false},              \
             [EPOCHS] = {"EPOCHS", 1, 1e6, 20, true},         \
             [BATCH_SIZE] = {"BATCH_SIZE", 1, 1e6, 64, true}, \
             [FC_SIZE] = {"FC_SIZE", 1, 1e5, 128, true}},     \
            write_intents                                     \
    }
    ROW(INTENTS),
    ROW(INTENTS "-torch"),
#undef ROW
};

const td__algorithm *td__algorithm_find(const char *name)
{
    for (int i = 0; i < TD_LEN(ALGORITHMS); i++)
        if (!strcmp(ALGORITHMS[i].name, name))
            return &ALGORITHMS[i];
    return NULL;
}

const char *td__algorithm_names(void)
{
    return INTENTS ", " INTENTS "-torch";
}

static td_status read_value(const td__job_spec *s, const parameter *p, double *out)
{
    const char *text = td__pairs_get(&s->parameters, p->name);
    char *end = NULL;

    *out = p->otherwise;
    if (!text)
        return TD_OK;
    *out = strtod(text, &end);
    if (!*text || *end || !(*out >= p->lo && *out <= p->hi) ||
        (p->whole && *out != (double)(int64_t)*out))
        return TD_FAIL(TD_EINVAL, "parameters: %s: expected %s from %.9g to %.9g, found '%.40s'",
                       p->name, p->whole ? "a whole number" : "a number", p->lo, p->hi, text);
    return TD_OK;
}

static td_status read_values(const td__job_spec *s, const td__algorithm *a,
                             double v[MOST_PARAMETERS])
{
    for (int i = 0; i < MOST_PARAMETERS && a->parameters[i].name; i++)
        TD_TRY(read_value(s, &a->parameters[i], &v[i]));
    return TD_OK;
}

td_status td__algorithm_check(const td__job_spec *s)
{
    double values[MOST_PARAMETERS];

    return read_values(s, td__algorithm_find(s->algorithm), values);
}

td_status td__algorithm_job(const td__job_spec *s, const char *data, td__text *out)
{
    const td__algorithm *a = td__algorithm_find(s->algorithm);
    double values[MOST_PARAMETERS];

    TD_TRY(read_values(s, a, values));
    a->write(values, data, out);
    return td__text_status(out);
}
