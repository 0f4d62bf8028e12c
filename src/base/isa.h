/* isa.h -- one source, several instruction sets.
 *
 * Files in a folder named kernels/ are compiled once each for scalar, AVX2 and AVX-512 (see
 * CMakeLists.txt) as plain C loops that the compiler vectorises. Such a file names its functions
 * TD_ISA_SYM(td__foo), which appends the set; its header declares the three with TD_ISA_DECLARE;
 * who plans a kernel takes one with TD_ISA_PICK, once:
 *
 *     kernels/foo.h   TD_ISA_DECLARE(void, td__foo, (float *y, const float *x, int64_t n));
 *     kernels/foo.c   void TD_ISA_SYM(td__foo)(float *y, const float *x, int64_t n) { ... }
 *     plan_foo.c      state->foo = TD_ISA_PICK(cpu->isa, td__foo);
 *
 * A few, named in CMakeLists.txt, are compiled for AVX512-BF16 as well (td__foo_avx512bf16). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_ISA_H
#define TD_BASE_ISA_H

#include "base/cpu.h"

#define TD_ISA_PASTE_(name, isa) name##_##isa
#define TD_ISA_PASTE(name, isa) TD_ISA_PASTE_(name, isa)
#define TD_ISA_SYM(name) TD_ISA_PASTE(name, TD_ISA)

#define TD_ISA_DECLARE(result, name, args) \
    result name##_scalar args;             \
    result name##_avx2 args;               \
    result name##_avx512 args

#define TD_ISA_PICK(isa, name) \
    ((isa) >= TD_ISA_AVX512 ? name##_avx512 : (isa) >= TD_ISA_AVX2 ? name##_avx2 : name##_scalar)

#endif
