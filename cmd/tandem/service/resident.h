/* resident.h -- how little memory a service that waits needs to keep.
 *
 * Starting touches much that is never needed again: code that reads the configuration, tables of
 * symbols, the start of libraries. Those pages stay in the process's resident set although they
 * could be read again from their files, without a wait as long as the kernel has them in memory: a
 * page that is still in use is back after a fault of a microsecond. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_SERVICE_RESIDENT_H
#define TD_CMD_SERVICE_RESIDENT_H

#include "rpc/loop.h"

typedef struct td__resident {
    td__loop *loop;
    td__timer timer;
    td__turn_hook turn_end;
    bool due;
    const char *dir;
    void *tables; /* relocated ones of the program, read from a file in `dir`; NULL: not */
    size_t tables_size;
} td__resident;

/* Before the first allocation of any size and before threads: few heaps, from which what large
 * answers took goes back at once. */
void td__resident_limit(void);
/* Call after all other hooks of the loop are set: gives back the memory of the start after a
 * second, and twice a minute what was not used since. The loader has written into every page of
 * the program's tables; they are put into a file of `dir` that has no name, so that they can be
 * read again, too. */
void td__resident_start(td__resident *r, td__loop *loop, const char *dir);
void td__resident_stop(td__resident *r);

#endif
