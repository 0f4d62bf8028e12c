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
#ifndef TD_CMD_PREDICT_FILE_H
#define TD_CMD_PREDICT_FILE_H

#include "data/dataset.h"

typedef struct td__predict_file td__predict_file;

/* Opens nothing yet but checks the ending; count: rows to come; fields: the data's. */
TD_NODISCARD td_status td__predict_file_create(const char *path, int64_t count,
                                               const td__field *fields, int n_fields,
                                               td__predict_file **out);
/* Where td__trainer_predict shall say what a row is. */
td_dtype *td__predict_file_dtype(td__predict_file *p);
td_shape *td__predict_file_shape(td__predict_file *p);
/* A td__predict_sink; `file` is the td__predict_file. */
td_status td__predict_file_rows(void *file, int64_t first, int64_t rows, const void *output,
                                size_t row_nbytes);
/* The file is there, whole, after this. */
TD_NODISCARD td_status td__predict_file_commit(td__predict_file *p);
void td__predict_file_destroy(td__predict_file *p); /* NULL is allowed */

#endif
