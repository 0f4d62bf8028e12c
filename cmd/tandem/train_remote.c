/* train_remote.c -- `tandem train` and remote storage (see train_remote.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train_remote.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "job/job.h"

#ifdef TD_HAVE_SERVICE

#include <sys/stat.h>

#include "mirror/mirror.h"
#include "remote/url.h"

/* "runs/NAME": the last name of the address. */
static td_status place(const char *url, char out[TD__PATH])
{
    char shown[TD__URL_BYTES];

    td__url_shown(url, shown, sizeof shown);
    size_t n = strlen(shown);
    while (n > 0 && shown[n - 1] == '/')
        shown[--n] = '\0';
    const char *slash = strrchr(shown, '/');
    if (!slash || !slash[1] || slash[1] == '.')
        return TD_FAIL(TD_EINVAL, "--resume=%s: name the run's directory with --run-dir", shown);
    (void)mkdir("runs", 0777);
    return td__run_dir_path("runs", slash + 1, out);
}

td_status td__training_fetch(td__training *t)
{
    const char *url = td__args_value(t->args, "resume"), *dir = td__args_value(t->args, "run-dir");

    if (!url || !td__url_has_scheme(url))
        return TD_OK;
    TD_TRY(td__mirror_check(url));
    if (td__args_has(t->args, "or-begin")) {
        bool any;
        TD_TRY(td__mirror_any(url, &any));
        if (!any) {
            td__args_drop(t->args, "resume");
            return TD_OK;
        }
    }
    if (!dir)
        TD_TRY(place(url, t->fetched));
    else if (snprintf(t->fetched, sizeof t->fetched, "%s", dir) >= (int)sizeof t->fetched)
        return TD_FAIL(TD_EINVAL, "--run-dir: the path is too long");
    TD_TRY(td__mirror_fetch(url, t->fetched));
    td__args_replace(t->args, "resume", t->fetched);
    return TD_OK;
}

td_status td__training_check_urls(const td__training *t)
{
    const char *upload = t->run.session.opts.checkpoint_upload;
    const char *runs = td__job_log_opts(t->run.session.job)->runs_dir;
    const char *dir = td__args_value(t->args, "run-dir");

    if (upload)
        TD_TRY(td__mirror_check(upload));
    if (dir && td__url_has_scheme(dir))
        return TD_FAIL(TD_EINVAL,
                       "--run-dir=%s: not a directory; checkpoints go to a URL with "
                       "checkpoint.upload",
                       dir);
    if (td__url_has_scheme(runs))
        return TD_FAIL(TD_EINVAL,
                       "log.dir: %s is not a directory; checkpoints go to a URL with "
                       "checkpoint.upload",
                       runs);
    return TD_OK;
}

td__observer *td__training_upload(td__training *t, td__observer *next)
{
    const td__train_opts *o = &t->run.session.opts;

    if (!o->checkpoint_upload)
        return next;
    if (td__mirror_create(o->checkpoint_upload, t->run.dir, o->checkpoint_keep, next, &t->mirror)) {
        fprintf(stderr, "tandem train: nothing is uploaded: %s\n", td_last_error());
        return next;
    }
    return td__mirror_observer(t->mirror);
}

td_status td__training_send_shards(td__training *t)
{
    const td__train_opts *o = &t->run.session.opts;
    td__trainer *trainer = t->run.session.trainer;

    if (!o->checkpoint_upload || !trainer || !o->sync.zero)
        return TD_OK;
    if (td__shard_sender_create(o->checkpoint_upload, &t->shards)) {
        fprintf(stderr, "tandem train: nothing is uploaded: %s\n", td_last_error());
        return TD_OK;
    }
    return td__trainer_observe(trainer, td__shard_sender_observer(t->shards));
}

void td__training_sent_shards(td__training *t, int rc)
{
    td__shard_sender_finish(t->shards, rc == TD_EXIT_FAILED);
    t->shards = NULL;
}

int td__training_uploaded(td__training *t, int rc)
{
    td_status st = td__mirror_finish(t->mirror, rc == TD_EXIT_FAILED);

    t->mirror = NULL;
    if (!st)
        return rc;
    fprintf(stderr, "tandem train: the last checkpoint was not uploaded: %s\n", td_last_error());
    return rc ? rc : 1;
}

#else

/* Built without TD_SERVICE: paths are paths, and the job is refused when it begins. */
td_status td__training_fetch(td__training *t)
{
    const char *url = td__args_value(t->args, "resume");
    return url && strstr(url, "://")
               ? TD_FAIL(TD_ENOTSUP, "--resume=%s: built without remote storage (TD_SERVICE)", url)
               : TD_OK;
}

td_status td__training_check_urls(const td__training *t)
{
    (void)t;
    return TD_OK;
}

td__observer *td__training_upload(td__training *t, td__observer *next)
{
    (void)t;
    return next;
}

td_status td__training_send_shards(td__training *t)
{
    (void)t;
    return TD_OK;
}

void td__training_sent_shards(td__training *t, int rc)
{
    (void)t;
    (void)rc;
}

int td__training_uploaded(td__training *t, int rc)
{
    (void)t;
    return rc;
}

#endif
