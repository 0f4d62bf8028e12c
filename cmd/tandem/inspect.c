/* inspect.c -- `tandem inspect`: what a checkpoint or a safetensors file holds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/human.h"
#include "base/text.h"
#include "session.h"
#include "tandem/tensor.h"

/* Text out of the file, without what would control the terminal. The buffer is used again. */
static const char *printable(td__text *buffer, const char *s)
{
    td__text_clear(buffer);
    td__text_printable(buffer, s);
    return buffer->data ? buffer->data : "";
}

static void print_metadata(const td_safetensors *s, td__text *buffer)
{
    for (int i = 0; i < td_safetensors_metadata_count(s); i++) {
        td_metadata m = td_safetensors_metadata(s, i);
        printf("%s: ", printable(buffer, m.key));
        printf("%s\n", printable(buffer, m.value));
    }
}

static td_status print_tensors(const char *path)
{
    td_safetensors *s;
    td__text buffer = {0};
    int width = 6;
    size_t total = 0;
    int64_t count = 0;
    char shape[128], b[TD__HUMAN];

    TD_TRY(td_safetensors_open(path, &s));
    int n = td_safetensors_count(s);
    print_metadata(s, &buffer);
    for (int i = 0; i < n; i++) {
        int len = (int)strlen(printable(&buffer, td_safetensors_name(s, i)));
        width = len > width ? len : width;
    }
    printf("%-*s  %-5s  %-20s  %10s\n", width, "tensor", "type", "shape", "size");
    for (int i = 0; i < n; i++) {
        td_tensor t = td_safetensors_tensor(s, i);
        printf("%-*s  %-5s  %-20s  %10s\n", width, printable(&buffer, td_safetensors_name(s, i)),
               td_dtype_name(t.dtype), td_shape_text(&t.shape, shape, sizeof shape),
               td__human_bytes((double)td_tensor_nbytes(&t), b));
        total += td_tensor_nbytes(&t);
        count += td_tensor_count(&t);
        td_tensor_fini(&t);
    }
    printf("%d tensors, %s elements, ", n, td__human_count(count, b));
    printf("%s\n", td__human_bytes((double)total, b));
    td_safetensors_close(s);
    td_status st = td__text_status(&buffer);
    td__text_fini(&buffer);
    return st;
}

static void print_state(const td__checkpoint_info *info)
{
    const td__train_state *s = &info->state;
    char b[TD__HUMAN];

    printf("%s\n", info->path);
    printf("  %-16s %" PRIu64 "\n", "step", s->step);
    printf("  %-16s %" PRIu64 ", batch %" PRId64 "\n", "epoch", s->epoch, s->batch_in_epoch);
    printf("  %-16s %s\n", "samples seen", td__human_count((int64_t)s->samples, b));
    printf("  %-16s %" PRIu64 "\n", "seed", s->seed);
    if (isfinite(s->best))
        printf("  %-16s %.6g at step %" PRIu64 "\n", "best", s->best, s->best_step);
    printf("  %-16s %s\n", "model", td__human_bytes((double)info->model_nbytes, b));
    printf("  %-16s %s\n", "optimizer", td__human_bytes((double)info->optimizer_nbytes, b));
    printf("  %-16s sha256:%s\n", "job", s->job_digest);
    printf("  %-16s sha256:%s\n", "weights", s->digest);
    /* td__checkpoint_find takes none whose files differ from their hashes. */
    printf("  %-16s %s\n\n", "files", "intact: the sha256 of each matches");
}

static td_status inspect(const td__args *a)
{
    const char *path = td__args_at(a, 0);
    td__checkpoint_info info;
    char model[TD__PATH];
    struct stat st;

    if (stat(path, &st) != 0)
        return TD_FAIL(TD_EINVAL, "%s: no such file or directory", path);
    if (!S_ISDIR(st.st_mode)) {
        if (td__args_value(a, "checkpoint"))
            return TD_FAIL(TD_EINVAL, "--checkpoint needs a run's directory, but %s is a file",
                           path);
        return print_tensors(path);
    }
    TD_TRY(td__session_checkpoint(path, td__args_value(a, "checkpoint"), &info));
    print_state(&info);
    TD_TRY(td__run_dir_path(info.path, "model.safetensors", model));
    return print_tensors(model);
}

static int run(const td__args *a)
{
    td_status st = inspect(a);
    return st ? td__failure(a, st) : TD_EXIT_OK;
}

static const td__flag FLAGS[] = {TD_FLAG_CHECKPOINT, {.name = NULL}};

static const char *const EXAMPLES[] = {"tandem inspect runs/digits-0001",
                                       "its newest checkpoint",
                                       "tandem inspect runs/digits-0001 --checkpoint best",
                                       "its best one",
                                       "tandem inspect model.safetensors",
                                       "the tensors of a file",
                                       NULL};

const td__command td__command_inspect = {
    .name = "inspect",
    .args = "RUN|CHECKPOINT|FILE.safetensors",
    .summary = "print the contents of a checkpoint or a safetensors file",
    .text = "Prints the training state, the digests, and every tensor with its type, shape and "
            "size. The files of a checkpoint are checked against their recorded hashes; a damaged "
            "file is an error.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
