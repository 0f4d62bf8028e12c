/* names.h -- what a checkpoint's directory and the files in it and beside it are called. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CHECKPOINT_NAMES_H
#define TD_CHECKPOINT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#define TD__STATE_FILE "state.json"
#define TD__LATEST_FILE "latest"
#define TD__BEST_FILE "best"
enum { TD__STEP_NAME = 32 };

/* The files besides state.json: enumerator, name. */
#define TD__CHECKPOINT_FILE_MAP(X)        \
    X(MODEL, "model.safetensors")         \
    X(OPTIMIZER, "optimizer.safetensors") \
    X(PREPROCESSING, "preprocessing.json") /* those of older programs have none */

typedef enum td__checkpoint_file {
#define X(id, name) TD__FILE_##id,
    TD__CHECKPOINT_FILE_MAP(X)
#undef X
        TD__FILE_COUNT
} td__checkpoint_file;

const char *td__checkpoint_file_name(td__checkpoint_file f);

/* "step-00000100" and back; false if the name is not of that form. */
void td__step_name(uint64_t step, char name[TD__STEP_NAME]);
bool td__step_parse(const char *name, uint64_t *step);

/* The name in the file `pointer` of dir (latest, best); false if there is none. */
bool td__checkpoint_pointer(const char *dir, const char *pointer, char name[TD__STEP_NAME]);

#endif
