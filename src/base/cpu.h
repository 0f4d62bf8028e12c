/* cpu.h -- what this processor can do, found at run time. Pure reading: asking changes nothing,
 * except that the first call asks the kernel for permission to use tile registers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_CPU_H
#define TD_BASE_CPU_H

#include <stdbool.h>

/* Instruction sets in rising order; each contains those before it. */
typedef enum td__isa {
    TD_ISA_SCALAR,      /* the baseline of the build */
    TD_ISA_AVX2,        /* AVX2 + FMA + F16C */
    TD_ISA_AVX512,      /* F, BW, DQ, VL */
    TD_ISA_AVX512_BF16, /* and vdpbf16ps */
    TD_ISA_AMX,         /* and tile registers with bf16 products, permitted by the kernel */
    TD_ISA_COUNT
} td__isa;

/* The best one usable here; the environment variable TANDEM_ISA (a name from td__isa_name) lowers
 * it, for tests and for the same bits on unlike machines. Cached after the first call. */
td__isa td__cpu_isa(void);
const char *td__isa_name(td__isa isa);   /* "avx512" */
td__isa td__isa_named(const char *name); /* TD_ISA_COUNT: there is none of that name */
/* From now on be as a processor of this kind with this instruction set, which is at most
 * td__cpu_isa(): for the same bits on unlike machines. Before kernels are chosen. */
void td__cpu_lower(td__isa isa, const char *kind);

/* True where CPUID says AMX but its palette leaves (1DH, 1EH) read zero: some hypervisors do this,
 * and libraries that trust the leaves then die with SIGILL. */
bool td__cpu_amx_leaves_hidden(void);

/* Short id of the processor kind ("intel-6-207", "amd-25-17"), the key of tuning tables. */
const char *td__cpu_kind(void);

/* What libraries that choose kernels by themselves look at besides: vector extensions and caches of
 * the processor that is asked first, "vectors 1bf7ff, caches 48k/2 2048k/2 107520k/128" with the
 * number of threads that may share each. Not lowered by anything. "": not known. */
const char *td__cpu_more(void);
enum { TD__CPU_MORE = 88 };

/* Processors that this process may use: its affinity mask and the quotas of its control groups. */
int td__processors(void);
/* The latter alone, rounded up; 0: no limit. root: before /proc and /sys, "" but in tests. */
int td__cpu_quota(const char *root);

/* Flush denormals to zero on the calling thread (MXCSR FTZ and DAZ); returns the previous mode for
 * td__cpu_fp_restore. */
unsigned td__cpu_fp_flush(void);
void td__cpu_fp_restore(unsigned mode);

#endif
