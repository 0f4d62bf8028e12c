# SPDX-License-Identifier: Apache-2.0
# cmake -DLIBRARY=path -DSONAME=name -DPREFIXES=a|b -DOUTPUT=file.s -DNM=nm -P lazy_stubs.cmake: a
# stub for each of the library's functions whose names begin so, for x86-64.
#
# A stub jumps to where its slot points. While that is nowhere it jumps to `find`, which keeps all
# registers that arguments may be in, asks td__lazy_find(entry, library) (cmd/tandem/lazy_load.h),
# and jumps there. An entry is two 32-bit distances from itself: to the slot and to the name, so
# that nothing has to be relocated when the program starts.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " [TWi] (${PREFIXES})[A-Za-z0-9_]*" functions "${symbols}")
list(TRANSFORM functions REPLACE "^ . " "")
list(REMOVE_DUPLICATES functions)
if(NOT functions)
  message(FATAL_ERROR "${LIBRARY} has no functions ${PREFIXES}*")
endif()

set(text "\t.section .note.GNU-stack,\"\",@progbits
\t.text
find:
\tpushq %rbp
\tmovq %rsp, %rbp
\tandq $-16, %rsp
\tsubq $192, %rsp
\tmovq %rdi, 128(%rsp)
\tmovq %rsi, 136(%rsp)
\tmovq %rdx, 144(%rsp)
\tmovq %rcx, 152(%rsp)
\tmovq %r8, 160(%rsp)
\tmovq %r9, 168(%rsp)
\tmovq %rax, 176(%rsp)
\tmovq %r10, 184(%rsp)
")
foreach(i RANGE 7)
  math(EXPR at "16 * ${i}")
  string(APPEND text "\tmovups %xmm${i}, ${at}(%rsp)\n")
endforeach()
string(APPEND text "\tmovq %r11, %rdi
\tleaq library(%rip), %rsi
\tcall td__lazy_find
\tmovq %rax, %r11
")
foreach(i RANGE 7)
  math(EXPR at "16 * ${i}")
  string(APPEND text "\tmovups ${at}(%rsp), %xmm${i}\n")
endforeach()
string(APPEND text "\tmovq 128(%rsp), %rdi
\tmovq 136(%rsp), %rsi
\tmovq 144(%rsp), %rdx
\tmovq 152(%rsp), %rcx
\tmovq 160(%rsp), %r8
\tmovq 168(%rsp), %r9
\tmovq 176(%rsp), %rax
\tmovq 184(%rsp), %r10
\tleave
\tjmp *%r11
\t.section .rodata
library:\t.asciz \"${SONAME}\"
")
set(number 0)
foreach(function IN LISTS functions)
  string(APPEND text "\t.text
\t.p2align 4
\t.globl ${function}
\t.hidden ${function}
\t.type ${function}, @function
${function}:
\tendbr64
\tmovq .Lslot${number}(%rip), %r11
\ttestq %r11, %r11
\tje 1f
\tjmp *%r11
1:\tleaq .Lentry${number}(%rip), %r11
\tjmp find
\t.size ${function}, . - ${function}
\t.section .rodata
.Lname${number}:\t.asciz \"${function}\"
\t.p2align 2
.Lentry${number}:\t.long .Lslot${number} - .Lentry${number}, .Lname${number} - .Lentry${number}
\t.bss
\t.p2align 3
.Lslot${number}:\t.zero 8
")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "${text}")
