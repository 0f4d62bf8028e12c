/* devices.c -- `tandem devices`: the processors and GPUs of this machine, and which of them this
 * build can use. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "backend/cpu/engine_onednn.h"
#include "base/cpu.h"
#include "coll/nccl/library.h"
#include "command.h"
#include "graph/backend_auto.h"

static void print_nccl(void)
{
    const td__nccl_api *nccl;
    if (td__nccl_load(&nccl))
        printf("NCCL missing (GPUs of several hosts exchange through memory of the host)\n");
    else
        printf("NCCL %d.%d.%d\n", nccl->version / 10000, nccl->version / 100 % 100,
               nccl->version % 100);
}

static void print_gpus(const char *backend, const td__gpus *gpus)
{
    td__gpu_info gpu;
    char text[160];
    int count;
    if (gpus->count(&count)) {
        printf("%-5s none: %s\n", backend, td_last_error());
        return;
    }
    for (int i = 0; i < count; i++) {
        printf("%-5s GPU %d: %s\n", backend, i,
               gpus->describe(i, &gpu) ? td_last_error() : gpu.what);
        if (gpus->runs_on && gpus->runs_on(i))
            printf("%-5s GPU %d cannot be used: %s\n", backend, i, td_last_error());
    }
    if (gpus->libraries) {
        gpus->libraries(text, sizeof text);
        printf("%-5s libraries: %s, ", backend, text);
        print_nccl();
    }
}

static int run(const td__args *a)
{
    (void)a;
    const char *onednn = td__onednn_version();
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    printf("cpu   %s, instruction set %s, %d processors, %.1f GiB, %s%s\n", td__cpu_kind(),
           td__isa_name(td__cpu_isa()), td__processors(), memory / (1024.0 * 1024 * 1024),
           onednn ? "oneDNN " : "no oneDNN", onednn ? onednn : "");
    const char *name;
    for (int i = 0; (name = td__backend_name(i)); i++) {
        const td__gpus *gpus = td__backend_traits(name).gpus;
        if (gpus)
            print_gpus(name, gpus);
    }
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
        "(CUDA_VISIBLE_DEVICES), with its memory, and which libraries the GPUs "
        "are fast with; or why there is none: no driver, no GPU, or a "
        "build without CUDA. The first word is what train.backend is set to; of several GPUs the "
        "ranks of a host take one each, in turn.",
    .examples = EXAMPLES,
    .run = run,
};
