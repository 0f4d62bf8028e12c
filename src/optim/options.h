/* options.h -- finding an optimizer by name, and checking what it was given. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPTIM_OPTIONS_H
#define TD_OPTIM_OPTIONS_H

#include "optim/optimizer.h"

/* The optimizer that `given` names, and its options with all defaults filled in. TD_EINVAL with one
 * line naming optimizer, option and value if something is out of range or not its own. */
TD_NODISCARD td_status td__optim_resolve(const td_optim_opts *given, const td__optim_def **def,
                                         td_optim_opts *out);

#endif
