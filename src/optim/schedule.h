/* schedule.h -- what the layers above ask about schedules beyond tandem/optim.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPTIM_SCHEDULE_H
#define TD_OPTIM_SCHEDULE_H

#include <stdbool.h>

/* Does the rate depend on total_steps (cosine, polynomial)? */
bool td__schedule_has_end(const char *name);

#endif
