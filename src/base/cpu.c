/* cpu.c -- reading CPUID and XCR0, and asking the kernel for tile registers.
 *
 * An instruction set is usable when the processor has it (CPUID) and the kernel saves its registers
 * (XCR0). Tile data is large, so that Linux saves it only for processes that ask (arch_prctl). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>
#endif

static const char *const ISA_NAMES[TD_ISA_COUNT] = {
    [TD_ISA_SCALAR] = "scalar",           [TD_ISA_AVX2] = "avx2", [TD_ISA_AVX512] = "avx512",
    [TD_ISA_AVX512_BF16] = "avx512_bf16", [TD_ISA_AMX] = "amx",
};

/* Found once, by `once`. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic td__isa best;
static bool leaves_hidden;
static char own_kind[40], more[TD__CPU_MORE];

#if defined(__x86_64__)

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILE_DATA = 18 };

typedef struct regs {
    uint32_t a, b, c, d;
} regs;

/* All zero where the leaf does not exist. */
static regs cpuid(uint32_t leaf, uint32_t sub)
{
    regs r = {0, 0, 0, 0};
    __get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d);
    return r;
}

static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool has(uint64_t bits, uint64_t mask)
{
    return (bits & mask) == mask;
}

#define BIT(n) (UINT64_C(1) << (n))

static td__isa find_isa(void)
{
    regs r1 = cpuid(1, 0), r7 = cpuid(7, 0), r71 = cpuid(7, 1);

    if (!has(r1.c, BIT(27))) /* OSXSAVE: without it XCR0 cannot be read */
        return TD_ISA_SCALAR;
    uint64_t saved = xcr0();
    if (!has(r1.c, BIT(12) | BIT(28) | BIT(29)) /* FMA, AVX, F16C */ || !has(r7.b, BIT(5)) ||
        !has(saved, BIT(1) | BIT(2)))
        return TD_ISA_SCALAR;
    if (!has(r7.b, BIT(16) | BIT(17) | BIT(30) | BIT(31)) /* F, DQ, BW, VL */ ||
        !has(saved, BIT(5) | BIT(6) | BIT(7)))
        return TD_ISA_AVX2;
    if (!has(r71.a, BIT(5)))
        return TD_ISA_AVX512;
    if (!has(r7.d, BIT(22) | BIT(24)) /* AMX-BF16, AMX-TILE */ || !has(saved, BIT(17) | BIT(18)))
        return TD_ISA_AVX512_BF16;
    leaves_hidden = cpuid(0x1d, 0).a == 0;
    return TD_ISA_AMX;
}

static bool tiles_permitted(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}

static void find_kind(void)
{
    regs r0 = cpuid(0, 0), r1 = cpuid(1, 0);
    char vendor[13] = {0};
    memcpy(vendor, &r0.b, 4);
    memcpy(vendor + 4, &r0.d, 4);
    memcpy(vendor + 8, &r0.c, 4);

    uint32_t family = (r1.a >> 8) & 15, model = (r1.a >> 4) & 15;
    if (family == 6 || family == 15)
        model |= (r1.a >> 12) & 0xf0;
    if (family == 15)
        family += (r1.a >> 20) & 0xff;
    const char *name = strcmp(vendor, "GenuineIntel") == 0   ? "intel"
                       : strcmp(vendor, "AuthenticAMD") == 0 ? "amd"
                                                             : "x86";
    snprintf(own_kind, sizeof own_kind, "%s-%u-%u", name, family, model);
}

/* Bit i of the result is bit at[i] of the word. */
static uint32_t bits_at(uint32_t word, const uint8_t *at, int n)
{
    uint32_t out = 0;
    for (int i = 0; i < n; i++)
        out |= (word >> at[i] & 1) << i;
    return out;
}

static void find_more(void)
{
    static const uint8_t B[] = {5, 16, 17, 21, 28, 30, 31}; /* AVX2; F, DQ, IFMA, CD, BW, VL */
    static const uint8_t C[] = {1, 6, 11, 12, 14};          /* VBMI, VBMI2, VNNI, BITALG, POPCNT */
    static const uint8_t D[] = {22, 23, 24, 25};            /* AMX-BF16, FP16, AMX-TILE, -INT8 */
    static const uint8_t A[] = {4, 5, 21};                  /* AVX-VNNI, BF16, AMX-FP16 */
    regs r7 = cpuid(7, 0), r71 = cpuid(7, 1);
    uint32_t leaf = cpuid(4, 0).a & 31 ? 4 : 0x8000001d; /* Intel's, AMD's */

    int n = snprintf(more, sizeof more, "vectors %02x%02x%x%x", bits_at(r7.b, B, sizeof B),
                     bits_at(r7.c, C, sizeof C), bits_at(r7.d, D, sizeof D),
                     bits_at(r71.a, A, sizeof A));
    if (r7.d >> 15 & 1) /* cores of two kinds: caches would be of the one that was asked */
        return;
    n += snprintf(more + n, sizeof more - (size_t)n, ", caches");
    for (uint32_t i = 0; i < 8 && n < (int)sizeof more; i++) {
        regs r = cpuid(leaf, i);
        if (!(r.a & 31)) /* none after the last */
            break;
        if ((r.a & 31) == 2) /* of instructions */
            continue;
        uint64_t nbytes = (uint64_t)((r.b >> 22) + 1) * ((r.b >> 12 & 1023) + 1) *
                          ((r.b & 4095) + 1) * ((uint64_t)r.c + 1);
        n += snprintf(more + n, sizeof more - (size_t)n, " %lluk/%u",
                      (unsigned long long)(nbytes >> 10), (r.a >> 14 & 4095) + 1);
    }
}

enum { FTZ_DAZ = 0x8040 };

/* Writing the register costs more than reading it, and callers are within each other. */
unsigned td__cpu_fp_flush(void)
{
    unsigned before = _mm_getcsr();
    if ((before & FTZ_DAZ) != FTZ_DAZ)
        _mm_setcsr(before | FTZ_DAZ);
    return before;
}

void td__cpu_fp_restore(unsigned mode)
{
    if (_mm_getcsr() != mode)
        _mm_setcsr(mode);
}

#else

static td__isa find_isa(void)
{
    return TD_ISA_SCALAR;
}

static bool tiles_permitted(void)
{
    return false;
}

static void find_kind(void)
{
    snprintf(own_kind, sizeof own_kind, "generic");
}

static void find_more(void)
{
}

unsigned td__cpu_fp_flush(void)
{
    return 0;
}

void td__cpu_fp_restore(unsigned mode)
{
    (void)mode;
}

#endif

/* The limit that the environment sets; a name that is unknown sets none. */
static td__isa isa_limit(void)
{
    const char *name = td__env_get(TD_ENV_ISA);
    if (!name)
        return TD_ISA_COUNT - 1;
    if (td__isa_named(name) != TD_ISA_COUNT)
        return td__isa_named(name);
    TD_LOG(WARN, BASE, "%s=%s is not an instruction set; ignored", td__env_name(TD_ENV_ISA), name);
    return TD_ISA_COUNT - 1;
}

static void find(void)
{
    td__isa limit = isa_limit(), isa = find_isa();

    find_kind();
    find_more();
    if (isa > limit)
        isa = limit;
    if (isa == TD_ISA_AMX && !tiles_permitted())
        isa = TD_ISA_AVX512_BF16;
    best = isa;
    TD_LOG(INFO, BASE, "cpu %s, instruction set %s", own_kind, ISA_NAMES[isa]);
}

void td__cpu_lower(td__isa isa, const char *kind)
{
    pthread_once(&once, find);
    if (isa < best)
        best = isa;
    if (strcmp(own_kind, kind) != 0) /* readers keep their pointer: the text changes in place */
        snprintf(own_kind, sizeof own_kind, "%s", kind);
}

td__isa td__isa_named(const char *name)
{
    int i = 0;

    while (i < TD_ISA_COUNT && strcmp(name, ISA_NAMES[i]) != 0)
        i++;
    return (td__isa)i;
}

td__isa td__cpu_isa(void)
{
    pthread_once(&once, find);
    return best;
}

const char *td__isa_name(td__isa isa)
{
    return (unsigned)isa < TD_ISA_COUNT ? ISA_NAMES[isa] : "?";
}

bool td__cpu_amx_leaves_hidden(void)
{
    pthread_once(&once, find);
    return leaves_hidden;
}

const char *td__cpu_kind(void)
{
    pthread_once(&once, find);
    return own_kind;
}

const char *td__cpu_more(void)
{
    pthread_once(&once, find);
    return more;
}
