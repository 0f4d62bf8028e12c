/* nets.h -- small networks that between them use what real models use, and networks in training,
 * for tests of programs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_NETS_H
#define TD_TESTS_SUPPORT_NETS_H

#include "tandem/tandem.h"

typedef struct net {
    const char *name;
    td_node *(*build)(td_graph *g); /* the loss */
    const char *optimizer;
    int max_id; /* integer inputs are below this */
} net;

extern const net NETS[];
extern const int N_NETS;

/* Spread the nodes of a graph over places 0 .. n - 1 in the order in which they were made; a leaf
 * goes to its first reader. */
void net_place(td_graph *g, int n);

/* Fill every input of r ("x", "y" where they exist) from a seed. */
void net_fill(const net *n, td_runner *r, unsigned seed);

/* A network in training. */
typedef struct trained {
    td_program *p;
    td_params *ps;
    td_runner *r;
    td_optimizer *o; /* NULL without an optimizer */
} trained;

/* Params come from the seed; g is destroyed. */
trained trained_start(td_graph *g, td_node *loss, const td_program_opts *opts, uint64_t seed,
                      const char *optimizer);
void trained_stop(trained *t);

#endif
