/* backoff.c -- spin, yield, sleep. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/backoff.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPINS = 4000, /* about 50 us */
    SPINS_CROWDED = 20,
    YIELDS_CROWDED = 100,
};

bool td__backoff_pause(td__backoff *b)
{
    uint32_t spins = b->crowded ? SPINS_CROWDED : SPINS;
    uint32_t yields = b->crowded ? YIELDS_CROWDED : 0;

    if (b->round >= spins + yields)
        return false;
    if (b->round++ < spins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else {
        sched_yield();
    }
    return true;
}

void td__futex_wait(_Atomic uint32_t *word, uint32_t seen, td__deadline until, bool shared)
{
    struct timespec left, *limit = NULL;

    if (until != TD_DEADLINE_NEVER) {
        uint64_t ns = td__deadline_left_ns(until);
        if (ns == 0)
            return;
        left.tv_sec = (time_t)(ns / 1000000000u);
        left.tv_nsec = (long)(ns % 1000000000u);
        limit = &left;
    }
    syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, limit, NULL, 0);
}

void td__futex_wake(_Atomic uint32_t *word, bool shared)
{
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
