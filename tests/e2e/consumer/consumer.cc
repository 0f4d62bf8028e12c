// consumer.cc -- a user's program in C++17 on the installed headers and library.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "tandem/tandem.h"

int main()
{
    td_graph *g = nullptr;

    if (td_graph_create(&g))
        return 1;
    td_shape shape{2, {4, 3}};
    td_node *x = td_input(g, "x", TD_F32, shape);
    td_node *y = td_mul(g, x, x);
    bool good = y && td_node_dtype(y) == TD_F32 && !std::strcmp(td_status_name(TD_OK), "OK");

    std::printf("c++ consumer: %d nodes\n", td_graph_node_count(g));
    td_graph_destroy(g);
    return good ? 0 : 1;
}
