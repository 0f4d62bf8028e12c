/* checkpoint_impl.h -- the inside of checkpoints: names, and state.json as a struct. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CHECKPOINT_CHECKPOINT_IMPL_H
#define TD_CHECKPOINT_CHECKPOINT_IMPL_H

#include "base/sha256.h"
#include "checkpoint/checkpoint.h"
#include "run/run_dir.h"

#define TD__STATE_FILE "state.json"
#define TD__LATEST_FILE "latest"
#define TD__BEST_FILE "best"
#define TD__TEMP_PREFIX ".tmp-"
enum { TD__STEP_NAME = 32 };

/* The files besides state.json: enumerator, name. */
#define TD__CHECKPOINT_FILE_MAP(X) \
    X(MODEL, "model.safetensors")  \
    X(OPTIMIZER, "optimizer.safetensors")

typedef enum td__checkpoint_file {
#define X(id, name) TD__FILE_##id,
    TD__CHECKPOINT_FILE_MAP(X)
#undef X
        TD__FILE_COUNT
} td__checkpoint_file;

const char *td__checkpoint_file_name(td__checkpoint_file f);

/* What state.json says. */
typedef struct td__manifest {
    td__train_state state;
    char optimizer[32];
    uint64_t optimizer_steps;
    struct {
        uint64_t nbytes;
        char sha256[TD_SHA256_HEX];
    } file[TD__FILE_COUNT];
} td__manifest;

TD_NODISCARD td_status td__manifest_write(const td__manifest *m, const char *path);
TD_NODISCARD td_status td__manifest_read(td__manifest *m, const char *path);
/* Size and sha256 of a file. */
TD_NODISCARD td_status td__manifest_hash(td__manifest *m, td__checkpoint_file f, const char *path);

/* "step-00000100" and back; false if the name is not of that form. */
void td__step_name(uint64_t step, char name[TD__STEP_NAME]);
bool td__step_parse(const char *name, uint64_t *step);

/* The steps of all checkpoints in dir, highest first; *out is freed with td__free. */
TD_NODISCARD td_status td__checkpoint_list(const char *dir, uint64_t **out, int *count);
/* The name in the file `pointer` of dir (latest, best); false if there is none. */
bool td__checkpoint_pointer(const char *dir, const char *pointer, char name[TD__STEP_NAME]);
/* Replace that name, at once. */
TD_NODISCARD td_status td__checkpoint_point(const char *dir, td__points *points,
                                            const char *pointer, const char *name);
/* Take the checkpoint away; it is there whole, or not at all. */
TD_NODISCARD td_status td__checkpoint_remove(const char *dir, const char *name);

#endif
