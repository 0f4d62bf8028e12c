/* nets.h -- small networks that between them use what real models use, for tests of programs. */
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

/* Fill every input of r ("x", "y" where they exist) from a seed. */
void net_fill(const net *n, td_runner *r, unsigned seed);

#endif
