/* service_data.c -- where a job's data set lies: asked before the job is eligible, so that a job
 * whose data is still being prepared holds up nobody else. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/service_impl.h"

enum { AGAIN_MS = 1000 };

void td__service_set_data_source(td__service *s, const td__dataset_source *d)
{
    s->data = *d;
    td__service_touch(s);
}

void td__service_want_data(td__service *s, td__active *a, int64_t at_ms)
{
    a->data_again_ms = at_ms;
    s->data_wake_ms = at_ms < s->data_wake_ms ? at_ms : s->data_wake_ms;
}

void td__service_ask_data(td__service *s, int64_t now)
{
    if (!s->data.fetch || now < s->data_wake_ms)
        return;
    s->data_wake_ms = INT64_MAX;
    for (size_t i = 0; i < s->n_buckets; i++)
        for (td__active *a = s->active[i]; a; a = a->hash_next) {
            if (!a->data_wanted || !a->data_again_ms)
                continue;
            if (a->data_again_ms > now) {
                td__service_want_data(s, a, a->data_again_ms);
                continue;
            }
            a->data_again_ms = 0; /* jobs that end by the answer leave the table later */
            s->data.fetch(s->data.arg, a->r->id, a->r->spec->dataset_id,
                          a->r->spec->train_data_version_hash);
        }
}

void td__service_data(td__service *s, int32_t job, td__data_state state, const char *bucket,
                      const char *path, const char *text)
{
    td__active *a = td__active_find(s, job);
    int64_t now = td__service_now_ms(s);

    if (!a || !a->data_wanted)
        return;
    if (state == TD_DATA_RUNNING) {
        td__service_want_data(s, a, now + AGAIN_MS);
        return;
    }
    a->data_wanted = false;
    if (state == TD_DATA_FAILED) {
        td__job_record_say(a->r, "%s", text ? text : "the data set cannot be had");
        td__sched_reject(s->sched, now, job);
        td__service_touch(s);
        return;
    }
    td__free(a->r->data_bucket);
    td__free(a->r->data_path);
    a->r->data_bucket = td__strdup(bucket ? bucket : "");
    a->r->data_path = td__strdup(path ? path : "");
    td__service_write(s, a->r);
    td__sched_release(s->sched, now, job);
}
