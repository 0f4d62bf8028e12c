/* checkpoint_back.c -- checkpoints of steps that are about to happen again.
 *
 * When rank 0 dies, it may have been a step or a validation ahead of all others, and have a
 * checkpoint of it. Who is rank 0 next takes what is said of that in metrics.jsonl back; were the
 * run resumed from that checkpoint after this, the line would be missing for ever. So it first
 * writes a checkpoint of where the run is now, which becomes the latest (generation.c). Where that
 * is the beginning there is nothing to write, and where it cannot be written, this is left:
 *
 *   1. `latest` is made to name the newest one that is not ahead. The other stays: it is written
 *      anew when the run has come there, and it may be marked as the best.
 *   2. If all are ahead: at the beginning `latest` is removed, then each of them but the best. A
 *      run that is killed between these finds the newest that is left, and in metrics.jsonl all
 *      that belongs to it. Later a line is worth less than the steps: they stay. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/checkpoint_impl.h"

/* Has the checkpoint of step `at` seen more than step `step` and the validation of step `valid`? */
static bool is_ahead(const char *dir, uint64_t at, uint64_t step, uint64_t valid)
{
    char name[TD__STEP_NAME], folder[TD__PATH], path[TD__PATH];
    td__manifest m;

    if (at != step)
        return at > step;
    td__step_name(at, name);
    return !td__run_dir_path(dir, name, folder) &&
           !td__run_dir_path(folder, TD__STATE_FILE, path) && !td__manifest_read(&m, path) &&
           m.state.valid_step > valid;
}

static td_status remove_all(const char *dir, const uint64_t *steps, int n)
{
    char best[TD__STEP_NAME] = "", name[TD__STEP_NAME], path[TD__PATH];

    TD_TRY(td__run_dir_path(dir, TD__LATEST_FILE, path));
    if (unlink(path) != 0 && errno != ENOENT)
        return TD_FAIL(TD_EIO, "%s: cannot remove it: %s", path, strerror(errno));
    (void)td__checkpoint_pointer(dir, TD__BEST_FILE, best);
    for (int i = 0; i < n; i++) {
        td__step_name(steps[i], name);
        if (strcmp(name, best) != 0)
            TD_TRY(td__checkpoint_remove(dir, name));
    }
    return TD_OK;
}

/* The step of the one that would be gone on from; false: there is none. */
static bool newest(const char *dir, const uint64_t *steps, int n, uint64_t *at)
{
    char latest[TD__STEP_NAME];

    if (!td__checkpoint_pointer(dir, TD__LATEST_FILE, latest) || !td__step_parse(latest, at))
        *at = n ? steps[0] : 0;
    return n > 0;
}

td_status td__checkpoint_ahead(const char *dir, uint64_t step, uint64_t valid, bool *ahead)
{
    uint64_t *steps, at;
    int n;

    TD_TRY(td__checkpoint_list(dir, &steps, &n));
    *ahead = newest(dir, steps, n, &at) && is_ahead(dir, at, step, valid);
    td__free(steps);
    return TD_OK;
}

td_status td__checkpoint_go_back(const char *dir, td__points *p, uint64_t step, uint64_t valid)
{
    char name[TD__STEP_NAME];
    uint64_t *steps;
    int n, older = 0;
    td_status st = TD_OK;

    TD_TRY(td__checkpoint_list(dir, &steps, &n));
    while (older < n && is_ahead(dir, steps[older], step, valid))
        older++;
    if (older < n) {
        td__step_name(steps[older], name);
        st = td__checkpoint_point(dir, p, TD__LATEST_FILE, name);
    } else if (step == 0) {
        st = remove_all(dir, steps, n);
    }
    td__free(steps);
    return st;
}
