/* tandem/tandem.h -- everything: one include for programs that use the library.
 *
 * The way: describe (graph.h, ops.h, nn.h), plan and run (program.h), train (optim.h); samples and
 * batches (data.h), tensors and their files (tensor.h), several ranks (coll.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TANDEM_H
#define TD_TANDEM_H

#include "tandem/alloc.h"
#include "tandem/coll.h"
#include "tandem/data.h"
#include "tandem/graph.h"
#include "tandem/log.h"
#include "tandem/nn.h"
#include "tandem/ops.h"
#include "tandem/optim.h"
#include "tandem/program.h"
#include "tandem/status.h"
#include "tandem/tensor.h"
#include "tandem/types.h"

#endif
