/* program_impl.h -- the inside of programs, params and runners.
 *
 * Words: a value is one output of one node; a slot is a param or state of a program; a location is
 * where a value lies: a space (block of memory) and an offset in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_PROGRAM_IMPL_H
#define TD_GRAPH_PROGRAM_IMPL_H

#include "graph/backend.h"
#include "graph/graph_impl.h"
#include "tensor/name_index.h"
#include "graph/params.h"
#include "tandem/program.h"

typedef enum td__space {
    TD_SPACE_ACTIVATION, /* the planned block */
    TD_SPACE_INPUT,
    TD_SPACE_CONSTANT,
    TD_SPACE_PARAM, /* params and states: the offset is the params object's, found by slot */
    TD_SPACE_GRAD,  /* gradients and new statistics: likewise */
    TD_SPACE_COUNT
} td__space;

typedef struct td__location {
    td__space space;
    size_t offset; /* bytes; PARAM: from where the slot begins; GRAD: unused */
    int slot;      /* PARAM and GRAD: index in program->slots */
} td__location;

typedef struct td__slot {
    const td_node *leaf;
    bool is_state, sparse;
    size_t offset; /* in the block of params and states: elements */
    double weight; /* states: of the new statistic; 0 where nothing is tracked */
} td__slot;

typedef struct td__step {
    const td_node *node;
    td_kernel kernel;
    size_t packed_offset;
    bool packed_before;    /* by an earlier step, in the same place */
    bool scratch_in_block; /* in the block of activations, where it has room while the step runs */
    size_t scratch_offset; /* there */
} td__step;

struct td_program {
    td_graph *g;
    td_backend *backend;
    bool evaluate;
    bool phased; /* steps are in order of phases */
    int phase_end[TD_RUN_PHASE_COUNT];
    td__location *location; /* by node id * TD_MAX_OUT + output; views have their base's */
    size_t space_bytes[TD_SPACE_COUNT];
    size_t activations_unshared;
    td__slot *slots; /* dense params in the order of their gradients, sparse params, states */
    int n_slots;
    size_t trainable, states; /* elements, with padding */
    td__step *steps;
    int n_steps;
    size_t scratch, packed;
    int *beside;           /* by node id: td__beside(); NULL: no node has any */
    size_t beside_scratch; /* of those nodes, which have one of their own */
};

struct td_params {
    td_param_info *info; /* names are owned */
    char **origin;       /* (count) where the job has them; NULL: not known */
    int count;
    td__named *by_name;             /* (count) */
    td_attr_pieces *pieces;         /* (count) how those lie that are cut: params.h */
    td_mem mem;                     /* of the block */
    float *block;                   /* the device's */
    size_t dense, trainable, total; /* elements: dense params; all params; params and states */
    uint64_t version;               /* rises with every change of the numbers */
};

/* Which nodes may be carried out beside those that follow, once it is known where values lie. */
TD_NODISCARD td_status td__plan_branches(td_program *p);
/* The id of the node at which n must be done, which is behind all for the last; 0: n is not one. */
int td__beside(const td_program *p, const td_node *n);

/* Pieces of a packed param, which are used where they lie. */
bool td__lies_in_param(const td_node *n);

/* The location of output k of n. */
static inline td__location *td__location_of(const td_program *p, const td_node *n, int k)
{
    return &p->location[(size_t)n->id * TD_MAX_OUT + (size_t)k];
}

/* Give every gradient root a value of its own that may lie in the gradient block, adding copies
 * where a root is a leaf, a shared value or not plain (graph/memory_plan.c). */
TD_NODISCARD td_status td__own_gradients(td_graph *g);

/* The rest of a program whose graph and list of slots are there: sizes, memory, kernels. */
TD_NODISCARD td_status td__program_plan(td_program *p, bool no_reuse);

/* Fill p->location, space_bytes and activations_unshared (graph/memory_plan.c). */
TD_NODISCARD td_status td__plan_memory(td_program *p, bool no_reuse);
/* last[node id * TD_MAX_OUT + output]: the id of the node after which nobody reads the value; the
 * number of nodes for roots. */
void td__value_lives(const td_program *p, int *last);

/* Where kernels have their scratch, once they are known (graph/scratch_plan.c). */
TD_NODISCARD td_status td__plan_scratch(td_program *p, bool no_reuse);

#endif
