/* predict_file.h -- predictions as a file: .csv, .jsonl or .npy by its ending.
 *
 * Where the target is a class, the model's output (..., classes) is turned into probabilities
 * (softmax over the last axis) and the most likely class is named; otherwise values are written as
 * they are.
 *
 *     csv    row,prediction,NAME...        one probability per class
 *            row,value...
 *     jsonl  {"row": 0, "prediction": "seven", "probability": 0.98, "probabilities": [...]}
 *            {"row": 0, "value": [...]}
 *     npy    all rows as one f32 array */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_PREDICT_FILE_H
#define TD_API_PREDICT_FILE_H

#include "train/trainer.h"

/* Has `path` one of the endings? */
TD_NODISCARD td_status td__predict_file_check(const char *path);
/* What the trainer's model says of all samples of d, into a file at `path`, which is there whole or
 * not at all. fields: of the training data, which know the names of classes. */
TD_NODISCARD td_status td__predict_file_write(td__trainer *t, td__dataset *d,
                                              const td__field *fields, int n_fields,
                                              const char *path);
/* Of a rank that writes none: where ranks hold parts of the params, each brings its own. */
TD_NODISCARD td_status td__predict_file_help(td__trainer *t, td__dataset *d);

#endif
