/* measure.h -- what a message costs, measured when meshes are new. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_MEASURE_H
#define TD_COLL_MEASURE_H

#include "coll/comm_impl.h"

/* Fills alpha and beta of the parts' meshes on rank 0 of each, by a few messages to and fro with
 * another rank; td__comm_assemble then gives rank 0's numbers to all. Takes a few milliseconds. */
TD_NODISCARD td_status td__measure_meshes(const td__comm_parts *p, td__deadline until);

#endif
