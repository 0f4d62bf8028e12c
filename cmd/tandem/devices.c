/* devices.c -- `tandem devices`: the processors and GPUs of this machine, and which of them this
 * build can use. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/cpu/engine_onednn.h"
#include "base/cpu.h"
#include "command.h"
#if TD_CUDA
#include "device/cuda/describe.h"
#endif

static void print_gpus(void)
{
#if TD_CUDA
    int count;
    if (td__cuda_count(&count)) {
        printf("cuda  none: %s\n", td_last_error());
        return;
    }
    for (int i = 0; i < count; i++) {
        td__cuda_kind kind;
        if (td__cuda_describe(i, &kind)) {
            printf("cuda  GPU %d: %s\n", i, td_last_error());
            continue;
        }
        printf("cuda  GPU %d: %s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver "
               "for CUDA %d.%d\n",
               i, kind.name, kind.major, kind.minor, kind.processors,
               (double)kind.memory / (1024.0 * 1024 * 1024), kind.driver / 1000,
               kind.driver % 1000 / 10);
    }
#else
    printf("cuda  none: this build has no CUDA; configure it where nvcc is\n");
#endif
}

static int run(const td__args *a)
{
    (void)a;
    const char *onednn = td__onednn_version();
    printf("cpu   %s, instruction set %s, %d processors, %s%s\n", td__cpu_kind(),
           td__isa_name(td__cpu_isa()), td__processors(), onednn ? "oneDNN " : "no oneDNN",
           onednn ? onednn : "");
    print_gpus();
    return TD_EXIT_OK;
}

static const char *const EXAMPLES[] = {"tandem devices", "what train.backend can be here",
                                       "CUDA_VISIBLE_DEVICES=1 tandem devices",
                                       "as a process sees it that may use the second GPU", NULL};

const td__command td__command_devices = {
    .name = "devices",
    .args = "",
    .summary = "list the processors and GPUs that training can use",
    .text =
        "Prints a line for the processor and one for each NVIDIA GPU that this process sees "
        "(CUDA_VISIBLE_DEVICES), with its memory; or why there is none: no driver, no GPU, or a "
        "build without CUDA. The first word is what train.backend is set to; of several GPUs the "
        "ranks of a host take one each, in turn.",
    .examples = EXAMPLES,
    .run = run,
};
