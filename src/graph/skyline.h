/* skyline.h -- how far a block of memory is taken at every step of a program, while buffers are
 * placed in it: up to where there is no gap (`full`), and in all (`top`). Where both are the same
 * over the life of a buffer, it belongs there, and nobody has to look at the other buffers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_SKYLINE_H
#define TD_GRAPH_SKYLINE_H

#include "tandem/status.h"

typedef struct td__skyline td__skyline;

td__skyline *td__skyline_create(int n_steps); /* NULL: out of memory */
void td__skyline_destroy(td__skyline *s);     /* NULL is allowed */

/* The highest over steps [first, last], both included. Nothing fits below `full`. */
size_t td__skyline_full(td__skyline *s, int first, int last);
size_t td__skyline_top(const td__skyline *s, int first, int last);
/* Bytes [begin, end) are taken in these steps; begin is not below their `full`. */
void td__skyline_add(td__skyline *s, int first, int last, size_t begin, size_t end);

#endif
