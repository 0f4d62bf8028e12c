/* warm_start.c -- model.from: a run begins with the weights of another one. Rank 0 reads them and
 * sends them to the others, as it does with all first weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "api/job_run.h"
#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/warm_start.h"

td_status td__job_run_check_from(const td__job_run *r)
{
    const char *split = td__sync_division_of(&r->session.opts.sync).split_params;

    if (td__job_from(r->session.job) && split)
        return TD_FAIL(TD_EINVAL, "model.from: not with %s, where no rank has all weights", split);
    return TD_OK;
}

td_status td__job_run_see_from(const td__job_run *r)
{
    const char *from = td__job_from(r->session.job);
    struct stat st;

    if (from && stat(from, &st) != 0)
        return TD_FAIL(TD_EINVAL, "model.from: %s: %s", from, strerror(errno));
    return TD_OK;
}

td_status td__job_run_from(td__job_run *r)
{
    const char *from = td__job_from(r->session.job);
    char path[TD__PATH];
    td__checkpoint_info info;
    td__warm_start found;
    struct stat st;

    if (!from)
        return TD_OK;
    TD_TRY(td__job_run_see_from(r));
    if (stat(from, &st) == 0 && S_ISDIR(st.st_mode)) {
        TD_TRY(td__session_checkpoint(from, NULL, &info));
        TD_TRY(td__run_dir_path(info.path, "model.safetensors", path));
    } else if (snprintf(path, sizeof path, "%s", from) >= (int)sizeof path) {
        return TD_FAIL(TD_EINVAL, "model.from: the path %.60s... is too long", from);
    }
    td__job_from_opts o = td__job_from_options(r->session.job);
    td__warm_start_opts how = {
        .fresh = o.fresh, .n_fresh = o.n_fresh, .rename = o.rename, .n_renames = o.n_renames};
    TD_TRY(td__warm_start_load(td__trainer_params(r->session.trainer), path, &how, &found));
    if (found.kept)
        TD_LOG(WARN, TRAIN, "model.from: %d tensors of %s taken; %d are new, as '%s'", found.taken,
               path, found.kept, found.first_kept);
    else
        TD_LOG(INFO, TRAIN, "model.from: %d tensors of %s taken", found.taken, path);
    return TD_OK;
}
