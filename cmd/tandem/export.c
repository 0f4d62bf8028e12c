/* export.c -- `tandem export`: the weights of a checkpoint as one file for other programs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/human.h"
#include "session.h"
#include "tandem/tensor.h"

typedef enum format { SAFETENSORS, NPZ } format;

static td_status pick_format(const char *path, format *out)
{
    const char *dot = strrchr(path, '.');

    if (dot && strcmp(dot, ".safetensors") == 0)
        *out = SAFETENSORS;
    else if (dot && strcmp(dot, ".npz") == 0)
        *out = NPZ;
    else
        return TD_FAIL(TD_EINVAL,
                       "--output: expected a name ending in .safetensors or .npz, "
                       "found '%.200s'",
                       path);
    return TD_OK;
}

static td_status write_file(const td_safetensors *s, const td__checkpoint_info *info,
                            const char *path, format f)
{
    int n = td_safetensors_count(s);
    char step[24], digest[80];
    td_tensor *tensors = td__calloc((size_t)n + 1, sizeof *tensors);
    td_named_tensor *items = td__calloc((size_t)n + 1, sizeof *items);
    td_status st = TD_OK;

    if (!tensors || !items) {
        st = TD_FAIL(TD_ENOMEM, "no memory for %d tensors", n);
        goto out;
    }
    for (int i = 0; i < n; i++) {
        tensors[i] = td_safetensors_tensor(s, i);
        items[i] = (td_named_tensor){td_safetensors_name(s, i), &tensors[i]};
    }
    snprintf(step, sizeof step, "%" PRIu64, info->state.step);
    snprintf(digest, sizeof digest, "sha256:%s", info->state.digest);
    const td_metadata about[] = {{"format", "pt"}, {"step", step}, {"digest", digest}};
    if (f == SAFETENSORS)
        st = td_safetensors_save(path, items, n, about, 3);
    else
        st = td_npz_save(path, items, n, false);
out:
    td__free(items);
    td__free(tensors);
    return st;
}

static td_status export(const td__args *a)
{
    const char *path = td__args_value(a, "output"), *from = td__args_at(a, 0);
    td__checkpoint_info info;
    td_safetensors *s;
    char model[TD__PATH], b[TD__HUMAN];
    struct stat st;
    format f;

    if (!path)
        return TD_FAIL(TD_EINVAL, "expected --output FILE.safetensors or FILE.npz");
    TD_TRY(pick_format(path, &f));
    TD_TRY(td__output_check("output", path));
    if (stat(from, &st) != 0 || !S_ISDIR(st.st_mode))
        return TD_FAIL(TD_EINVAL, "%s is not a run's directory", from);
    TD_TRY(td__session_checkpoint(from, td__args_value(a, "checkpoint"), &info));
    TD_TRY(td__run_dir_path(info.path, "model.safetensors", model));
    TD_TRY(td_safetensors_open(model, &s));
    td_status rc = write_file(s, &info, path, f);
    int n = td_safetensors_count(s);
    td_safetensors_close(s);
    TD_TRY(rc);
    if (stat(path, &st) == 0)
        printf("%s: %d tensors of step %" PRIu64 ", %s\n", path, n, info.state.step,
               td__human_bytes((double)st.st_size, b));
    return TD_OK;
}

static int run(const td__args *a)
{
    td_status st = export(a);
    return st ? td__failure(a, st) : TD_EXIT_OK;
}

static const td__flag FLAGS[] = {
    {.name = "output",
     .letter = 'o',
     .value = "FILE",
     .help = "FILE.safetensors or FILE.npz; the extension selects the format",
     .words = "FILE"},
    TD_FLAG_CHECKPOINT,
    {.name = NULL},
};

static const char *const EXAMPLES[] = {
    "tandem export runs/digits-0001 -o digits.safetensors", "for PyTorch, JAX, Rust, ...",
    "tandem export runs/digits-0001 --checkpoint best -o digits.npz", "for numpy.load", NULL};

const td__command td__command_export = {
    .name = "export",
    .args = "RUN|CHECKPOINT",
    .summary = "write the trained weights as safetensors or npz",
    .text = "The tensors have the names and shapes that PyTorch's modules of the same kind give "
            "them. The file is written whole or not at all.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
