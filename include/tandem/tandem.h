/* tandem/tandem.h -- everything: one include for programs that use the library.
 *
 * The way: describe a model (graph.h, ops.h, nn.h), read samples (data.h), train (train.h). Below
 * that: plan and run (program.h), update (optim.h), tensors and their files (tensor.h), what ranks
 * do together (coll.h, product.h). Shared objects that a job names are described in plugin.h. */
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
#include "tandem/place.h"
#include "tandem/plugin.h"
#include "tandem/product.h"
#include "tandem/program.h"
#include "tandem/status.h"
#include "tandem/tensor.h"
#include "tandem/train.h"
#include "tandem/types.h"

#endif
