/* version.c -- `tandem version`: what this program is, for reports of faults. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/cpu.h"
#include "command.h"

static int run(const td__args *a)
{
    (void)a;
    printf("tandem %s\n", TD_VERSION);
    printf("processor %s, instruction set %s\n", td__cpu_kind(), td__isa_name(td__cpu_isa()));
    return TD_EXIT_OK;
}

static const char *const EXAMPLES[] = {"tandem version", "version information for a bug report",
                                       NULL};

const td__command td__command_version = {
    .name = "version",
    .args = "",
    .summary = "print the version and the processor's instruction set",
    .text = "Prints the version of the program, then the kind of processor and the highest "
            "instruction set that will be used (TANDEM_ISA lowers it).",
    .examples = EXAMPLES,
    .run = run,
};
