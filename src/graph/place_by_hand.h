/* place_by_hand.h -- places for the nodes of a model as its author wants them: by layers that
 * places begin with, or by a wish at each node (td_node_place, `place` in a job). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_PLACE_BY_HAND_H
#define TD_GRAPH_PLACE_BY_HAND_H

#include "tandem/graph.h"

/* The wish of nodes that are made from now on; -1: none. Returns what it was. */
int td__graph_wish(td_graph *g, int place);
/* The highest wish of a node; -1: none has any. */
int td__graph_last_wish(const td_graph *g);

/* Places that wishes stand for: place p is for what wants wish_of(user, p). */
typedef struct td__wishes {
    int places; /* at most */
    int (*wish_of)(void *user, int place);
    void *user;
} td__wishes;
/* A node is at the first place of its wish at which all that it reads is there; without a wish,
 * where the last of what it reads is. A leaf is at the place of its first reader. TD_EINVAL, naming
 * both nodes, if there is none: values would have to go back. Places that follow each other and
 * stand for one wish share what wants it, by cost. */
TD_NODISCARD td_status td__graph_place_by_wish(td_graph *g, const td__wishes *w);

/* TD_EINVAL, with what would work, if a place is without a node. */
TD_NODISCARD td_status td__graph_check_places(const td_graph *g, const td__wishes *w);

/* Places after the first begin with these layers, "fc2, fc4": with the first node that reads one of
 * their params. A name is a layer's or begins or ends a part of it: "h.2" is found in
 * "transformer.h.2.ln_1". TD_EINVAL if one is unknown, or they are not in the order of the model;
 * `key` is what the texts call them. */
TD_NODISCARD td_status td__graph_place_by_layers(td_graph *g, const char *layers, int places,
                                                 const char *key);

#endif
