/* fibers.cpp -- see fibers.h. A fiber runs until it ends or comes to a barrier; the scheduler goes
 * round. A barrier is passed when all fibers of its group that have not ended are waiting there. A
 * block in which nobody can go on has a barrier that some threads never reach: that ends the
 * process, with the kernel's geometry. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fibers.h"

#include <stdio.h>
#include <stdlib.h>
#include <vector>

#include "device.h"

thread_local emulated_dim emulated_thread, emulated_block, emulated_block_dim, emulated_grid_dim;
thread_local char *emulated_dynamic_shared;

namespace
{

enum { STACK = 64 << 10, WARP = 32, MOST = 1024 };
enum state { READY, AT_WARP, AT_BLOCK, ENDED };

struct fiber {
    void *sp;
    state is;
    unsigned exchanges;
};

struct scheduler {
    fiber fibers[MOST];
    char *stacks = nullptr;
    char warp_memory[MOST / WARP][2][EMULATED_WARP_BYTES];
    std::vector<char> shared;
    void *sp;
    unsigned now, count;
    void (*fn)(const void *args);
    const void *args;
    ~scheduler()
    {
        free(stacks);
    }
};
thread_local scheduler me;

/* Save the registers that a call preserves, go over to another stack. */
extern "C" void emulated_switch(void **save, void *to);
asm(R"(
.text
.type emulated_switch, @function
emulated_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulated_switch, .-emulated_switch
)");

void begin()
{
    me.fn(me.args);
    me.fibers[me.now].is = ENDED;
    emulated_switch(&me.fibers[me.now].sp, me.sp);
    abort();
}

void prepare(unsigned t)
{
    void **sp = (void **)(me.stacks + (size_t)(t + 1) * STACK);
    *--sp = nullptr; /* the stack is aligned as after a call */
    *--sp = (void *)begin;
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    me.fibers[t] = {sp, READY, 0};
}

void wait_at(state barrier)
{
    me.fibers[me.now].is = barrier;
    emulated_switch(&me.fibers[me.now].sp, me.sp);
}

/* Fibers [from, to) that wait at `barrier` go on if all that have not ended do. */
bool pass(state barrier, unsigned from, unsigned to)
{
    unsigned waiting = 0, ended = 0;
    for (unsigned t = from; t < to; t++) {
        waiting += me.fibers[t].is == barrier;
        ended += me.fibers[t].is == ENDED;
    }
    if (!waiting || waiting + ended < to - from)
        return false;
    for (unsigned t = from; t < to; t++)
        if (me.fibers[t].is == barrier)
            me.fibers[t].is = READY;
    return true;
}

/* Run the fibers of one warp until each has ended or waits for the block. */
bool run_warp(unsigned from, unsigned to, unsigned *ended)
{
    bool moved = false;
    do {
        for (unsigned t = from; t < to; t++) {
            if (me.fibers[t].is != READY)
                continue;
            me.now = t;
            emulated_thread.x = t;
            emulated_switch(&me.sp, me.fibers[t].sp);
            *ended += me.fibers[t].is == ENDED;
            moved = true;
        }
    } while (pass(AT_WARP, from, to));
    return moved;
}

void run_block()
{
    for (unsigned t = 0; t < me.count; t++)
        prepare(t);
    for (unsigned ended = 0; ended < me.count;) {
        bool moved = false;
        for (unsigned w = 0; w < me.count; w += WARP)
            moved |= run_warp(w, w + WARP < me.count ? w + WARP : me.count, &ended);
        moved |= pass(AT_BLOCK, 0, me.count);
        if (!moved) {
            fprintf(stderr, "emulated GPU: a barrier that some of %u threads never reach\n",
                    me.count);
            abort();
        }
    }
}

} // namespace

void emulated_block_barrier()
{
    wait_at(AT_BLOCK);
}

void emulated_warp_barrier()
{
    wait_at(AT_WARP);
}

char *emulated_warp_memory()
{
    return me.warp_memory[me.now / WARP][me.fibers[me.now].exchanges++ % 2];
}

void emulated_run(void (*fn)(const void *args), const void *args, const unsigned grid[3],
                  unsigned threads, unsigned dynamic_shared)
{
    if (!me.stacks)
        me.stacks = (char *)malloc((size_t)MOST * STACK);
    me.shared.assign(dynamic_shared + 64, (char)0xEE);
    emulated_dynamic_shared = (char *)(((uintptr_t)me.shared.data() + 63) & ~(uintptr_t)63);
    me.fn = fn;
    me.args = args;
    me.count = threads;
    emulated_block_dim = {threads, 1, 1};
    emulated_grid_dim = {grid[0], grid[1], grid[2]};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                emulated_block = {x, y, z};
                run_block();
            }
}
