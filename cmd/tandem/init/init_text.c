/* init_text.c -- `tandem init` for a text: a small language model over its characters. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/fail.h"
#include "data/files.h"
#include "init.h"

enum { SMALL = 100000, TINY = 1000, WANT_STEPS = 2000 };

td_status td__init_text(td__init *in)
{
    td__text *t = &in->text;
    td__file_map m;

    TD_TRY(td__data_map(in->path, "a text", &m));
    size_t nbytes = m.nbytes;
    td__file_map_close(&m);
    if (nbytes < TINY)
        return TD_FAIL(TD_EINVAL, "%s: %zu bytes are too few to learn from; expected at least %d",
                       in->path, nbytes, TINY);
    int64_t context = nbytes < SMALL ? 32 : 128, stride = context / 4;
    td__init_sizes z = td__init_size((int64_t)nbytes / stride, 32, WANT_STEPS);
    td__text_printf(t, "# A language model over the characters of a text of %zu bytes.\n", nbytes);
    td__text_printf(t, "name: %s\n", in->name);
    td__text_printf(t, "model: {name: gpt2, layers: %d, heads: 4, width: %d}\n",
                    nbytes < SMALL ? 2 : 4, nbytes < SMALL ? 64 : 128);
    td__text_add(t, "metrics: [bits] # bits per character\n");
    td__text_add(t, "data:\n  source: text\n  train: ");
    td__init_word(t, in->seen);
    td__text_printf(t, "\n  context: %" PRId64 " # characters that a prediction sees\n", context);
    td__text_printf(t, "  stride: %" PRId64 "\n", stride);
    td__text_add(t, "  split: {valid: 0.1} # the end of the text\n");
    td__init_train(in, &z, "0.002", "loss");
    td__text_add(t, "  clip: 1 # of the gradient's norm\n");
    return td__text_status(t);
}
