/* control.h -- what a process of a launch and the agent of its host say to each other.
 *
 * The process connects to the agent's abstract socket (TANDEM_AGENT), proves the secret, says which
 * process it is (TANDEM_PROC) and beats from then on. An elastic process must do so, and is killed
 * if the agent hears nothing for the lease. Fixed ranks that train connect too, for `tandem status`
 * and for --lease and --hang; they say nothing but HELLO, HEARTBEAT and RUN_DIR. Frames
 * (net/frame.h) of these kinds; little-endian, offsets pinned below. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_CONTROL_H
#define TD_COLL_CONTROL_H

#include <assert.h>

#include "tandem/status.h"

typedef enum td__ctl_kind {
    /* To the agent. */
    TD_CTL_HELLO,     /* u32 process, u32 pid */
    TD_CTL_HEARTBEAT, /* td__ctl_heartbeat */
    TD_CTL_WAIT,      /* u64: wants a place in a generation after this one */
    TD_CTL_LEFT,      /* td__ctl_left, text: is out of a generation */
    TD_CTL_DRAIN,     /* wants to go */
    TD_CTL_RUN_DIR,   /* text */
    TD_CTL_KEPT,      /* all were asked to go, and the work is kept; before TD_CTL_LEFT */
    /* To the process. */
    TD_CTL_WELCOME,    /* u32: milliseconds between beats, u32: fewest ranks */
    TD_CTL_GENERATION, /* td__ctl_generation */
    TD_CTL_EXPECTED,   /* u32: ranks, once those that are being started have come */
    TD_CTL_WANTED,     /* td__ctl_wanted: a generation is to end at a step border */
    TD_CTL_END,        /* text: go */
    TD_CTL_STOP,       /* the job ends: keep the work at the next step border, and go */
} td__ctl_kind;

typedef struct td__ctl_heartbeat { /* td__heartbeat */
    uint64_t step, steps;
    double samples_per_second, loss, speed, wait;
    double since; /* seconds that step, phase and what are so */
    double idle;  /* seconds since it last said anything */
    uint32_t phase, faults;
    char what[48], about[64];
} td__ctl_heartbeat;
static_assert(sizeof(td__ctl_heartbeat) == 184 && offsetof(td__ctl_heartbeat, what) == 72, "wire");

typedef struct td__ctl_wanted {
    uint64_t generation;
    uint32_t goes; /* the process will have no place in the next one, as it seems */
    uint32_t pad;
} td__ctl_wanted;
static_assert(sizeof(td__ctl_wanted) == 16 && offsetof(td__ctl_wanted, goes) == 8, "wire");

typedef struct td__ctl_left {
    uint64_t generation;
    int32_t status;
    char why[252];
} td__ctl_left;
static_assert(sizeof(td__ctl_left) == 264 && offsetof(td__ctl_left, why) == 12, "wire");

typedef struct td__ctl_generation {
    uint64_t number;
    int32_t rank, size;
    int32_t seat; /* its number among the members on its host: which of several GPUs it takes */
    uint32_t pad;
    char store[64];
    char why[256];
} td__ctl_generation;
static_assert(sizeof(td__ctl_generation) == 344 && offsetof(td__ctl_generation, why) == 88, "wire");

#endif
