/* consumer.c -- a user's program in C: builds a graph through the installed headers and library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tandem/tandem.h"

int main(void)
{
    td_graph *g = NULL;

    if (td_graph_create(&g))
        return 1;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 3));
    td_node *y = td_relu(g, x);
    int bad = td_graph_status(g) != TD_OK || td_node_shape(y).dim[1] != 3;

    /* A mistake gives a status and a text, not a crash. */
    bad |= td_reshape(g, y, TD_SHAPE(5, 5)) != NULL || td_graph_status(g) != TD_EINVAL;
    printf("c consumer: %s\n", td_graph_error(g));
    td_graph_destroy(g);
    return bad;
}
