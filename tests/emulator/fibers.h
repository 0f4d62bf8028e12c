/* fibers.h -- the threads of a block of a kernel, in turns on one thread of the system. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_EMULATOR_FIBERS_H
#define TD_TESTS_EMULATOR_FIBERS_H

/* Run fn(args) for all threads of all blocks. */
void emulated_run(void (*fn)(const void *args), const void *args, const unsigned grid[3],
                  unsigned threads, unsigned dynamic_shared);

#endif
