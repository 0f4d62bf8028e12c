/* export.c -- `tandem export`: a checkpoint for other programs: its weights as one file, or the
 * model with them as an ONNX file or a PyTorch module. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "api/export_model.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "base/human.h"
#include "session.h"
#include "tandem/tensor.h"

typedef enum format { SAFETENSORS, NPZ, ONNX, PYTHON } format;

static td_status pick_format(const char *path, format *out)
{
    const char *dot = strrchr(path, '.');

    if (dot && strcmp(dot, ".safetensors") == 0)
        *out = SAFETENSORS;
    else if (dot && strcmp(dot, ".npz") == 0)
        *out = NPZ;
    else if (dot && strcmp(dot, ".onnx") == 0)
        *out = ONNX;
    else if (dot && strcmp(dot, ".py") == 0)
        *out = PYTHON;
    else
        return TD_FAIL(TD_EINVAL,
                       "--output: expected a name ending in .safetensors, .npz, .onnx or .py, "
                       "found '%.200s'",
                       path);
    return TD_OK;
}

/* --output with its ending, or the flag that says which it is. */
static td_status pick_output(const td__args *a, const char **path, format *f)
{
    const char *flag = td__args_value(a, "onnx") ? "onnx" : "python";
    const char *given = td__args_value(a, flag);

    *path = td__args_value(a, "output");
    if (!given && !*path)
        return TD_FAIL(TD_EINVAL,
                       "expected --output FILE.safetensors, FILE.npz, FILE.onnx or FILE.py");
    if (given && (*path || (td__args_value(a, "onnx") && td__args_value(a, "python"))))
        return TD_FAIL(TD_EINVAL, "--%s: one file at a time", flag);
    if (!given)
        return pick_format(*path, f);
    *path = given;
    *f = strcmp(flag, "onnx") == 0 ? ONNX : PYTHON;
    return TD_OK;
}

/* model.py has model.safetensors beside it. */
static td_status weights_path(const char *path, char out[TD__PATH])
{
    const char *dot = strrchr(path, '.');
    int n = dot && strcmp(dot, ".py") == 0 ? (int)(dot - path) : (int)strlen(path);

    if (snprintf(out, TD__PATH, "%.*s.safetensors", n, path) >= TD__PATH)
        return TD_FAIL(TD_EINVAL, "the path %.60s... is too long", path);
    return td__output_check("python", out);
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

/* The model itself; the number of nodes or tensors is no help here. */
static td_status export_model(const td__args *a, const char *path, format f)
{
    char weights[TD__PATH], model[TD__PATH], b[TD__HUMAN];
    td__session s = {.sample_only = true};
    td__checkpoint_info info;
    td_safetensors *w = NULL;
    struct stat st;
    td_status rc;

    TD_TRY_OR(rc, done, td__args_trained(&s, a, &info));
    if (f == ONNX) {
        rc = td__export_model_onnx(&s, &info, path);
    } else {
        TD_TRY_OR(rc, done, weights_path(path, weights));
        TD_TRY_OR(rc, done, td__run_dir_path(info.path, "model.safetensors", model));
        TD_TRY_OR(rc, done, td_safetensors_open(model, &w));
        const char *slash = strrchr(weights, '/');
        TD_TRY_OR(rc, done, td__export_model_torch(&s, &info, slash ? slash + 1 : weights, path));
        rc = write_file(w, &info, weights, SAFETENSORS);
    }
    if (!rc && stat(path, &st) == 0)
        printf("%s: the model of step %" PRIu64 " for %s, %s\n", path, info.state.step,
               f == ONNX ? "ONNX" : "PyTorch", td__human_bytes((double)st.st_size, b));
    if (!rc && f == PYTHON)
        printf("%s: its weights\n", weights);
done:
    td_safetensors_close(w);
    td__session_fini(&s);
    return rc;
}

/* Tables on servers have files of their own beside the checkpoints. */
static void warn_of_tables(const td__checkpoint_info *info)
{
    char tables[TD__PATH];
    struct stat st;

    if (!td__run_dir_path(info->path, "../tables", tables) && stat(tables, &st) == 0)
        fprintf(stderr,
                "tandem export: rows of tables on servers are in %s alone: their tensors are "
                "zeros\n",
                tables);
}

/* A directory, or the newest run of a job. */
static td_status find_run(const char *from, char run[TD__PATH])
{
    struct stat st;
    td__job *job;

    if (stat(from, &st) != 0)
        return TD_FAIL(TD_EINVAL, "%s is not a run's directory", from);
    if (S_ISDIR(st.st_mode)) {
        snprintf(run, TD__PATH, "%s", from);
        return TD_OK;
    }
    TD_TRY(td__job_load(from, NULL, 0, &job));
    td_status rc = td__run_dir_newest(td__job_log_opts(job)->runs_dir, td__job_name(job), run);
    td__job_destroy(job);
    return rc;
}

static td_status export(const td__args *a)
{
    const char *path;
    char run[TD__PATH];
    td__checkpoint_info info;
    td_safetensors *s;
    char model[TD__PATH], b[TD__HUMAN];
    struct stat st;
    format f;

    TD_TRY(pick_output(a, &path, &f));
    TD_TRY(td__output_check("output", path));
    if (f == ONNX || f == PYTHON)
        return export_model(a, path, f);
    TD_TRY(find_run(td__args_at(a, 0), run));
    TD_TRY(td__session_checkpoint(run, td__args_value(a, "checkpoint"), &info));
    TD_TRY(td__run_dir_path(info.path, "model.safetensors", model));
    TD_TRY(td_safetensors_open(model, &s));
    td_status rc = write_file(s, &info, path, f);
    int n = td_safetensors_count(s);
    td_safetensors_close(s);
    TD_TRY(rc);
    if (stat(path, &st) == 0)
        printf("%s: %d tensors of step %" PRIu64 ", %s\n", path, n, info.state.step,
               td__human_bytes((double)st.st_size, b));
    warn_of_tables(&info);
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
     .help = "FILE.safetensors, FILE.npz, FILE.onnx or FILE.py; the extension selects the format",
     .words = "FILE"},
    {.name = "onnx", .value = "FILE", .help = "the whole model as an ONNX file", .words = "FILE"},
    {.name = "python",
     .value = "FILE",
     .help = "the whole model as a PyTorch module, with its weights beside it",
     .words = "FILE"},
    TD_FLAG_CHECKPOINT,
    {.name = NULL},
};

static const char *const EXAMPLES[] = {
    "tandem export runs/digits-0001 -o digits.safetensors",
    "for PyTorch, JAX, Rust, ...",
    "tandem export runs/digits-0001 --checkpoint best -o digits.npz",
    "for numpy.load",
    "tandem export runs/digits-0001 --onnx digits.onnx",
    "for onnxruntime and others",
    "tandem export runs/digits-0001 --python digits.py",
    "for `import digits; digits.load()`",
    NULL};

const td__command td__command_export = {
    .name = "export",
    .args = "RUN|JOB.yaml|CHECKPOINT",
    .summary = "write the trained weights or model for other programs",
    .text = "The tensors have the names and shapes that PyTorch's modules of the same kind give "
            "them. An ONNX file (opset 17) and a PyTorch module take samples as the model reads "
            "them, after the job's map stages, and give what it says before softmax; the module "
            "also has predict() for rows of tables, images and texts as they are, and samples(), "
            "which needs no PyTorch, for the ONNX file. The number of rows is open. Each file is "
            "written whole or not at all.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
