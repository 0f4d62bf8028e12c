/* trackers.c -- the list of trackers; see tracker.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "service/track/tracker.h"

#define TD_TRACKER(name) extern const td__tracker_ops td__tracker_##name;
#include "service/track/trackers.def"
#undef TD_TRACKER

static const td__tracker_ops *const TRACKERS[] = {
#define TD_TRACKER(name) &td__tracker_##name,
#include "service/track/trackers.def"
#undef TD_TRACKER
    NULL};

const char *td__member_state_name(td__member_state s)
{
    static const char *const NAMES[] = {[TD_MEMBER_GONE] = "gone",
                                        [TD_MEMBER_WAITING] = "waiting",
                                        [TD_MEMBER_RUNNING] = "running",
                                        [TD_MEMBER_ENDED] = "ended"};
    return NAMES[s];
}

const td__tracker_ops *td__tracker_at(int i)
{
    return i >= 0 && i < TD_LEN(TRACKERS) ? TRACKERS[i] : NULL;
}

const td__tracker_ops *td__tracker_find(const char *name)
{
    for (int i = 0; TRACKERS[i]; i++)
        if (!strcmp(TRACKERS[i]->name, name))
            return TRACKERS[i];
    return NULL;
}
