/* service_workers.c -- members of groups: where they are, how they are, and how long their ranks
 * wait for others. The tracker knows the first two; the run says the third, in its metrics. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "service/service_impl.h"

enum { TAIL = 64 << 10 }; /* bytes of metrics in which the last line about ranks is looked for */

/* The last whole line {"event": "ranks", ...}; NULL: there is none. The caller's. */
static json_t *last_ranks(td__service *s, int32_t job, char tail[TAIL])
{
    const char *const word = "\"ranks\"";
    size_t n = td__service_metrics_tail(s, job, tail, TAIL);

    for (;;) {
        while (n > 0 && tail[n - 1] != '\n')
            n--;
        if (!n)
            return NULL;
        size_t end = --n;
        while (n > 0 && tail[n - 1] != '\n')
            n--;
        if (!memmem(tail + n, end - n, word, strlen(word)))
            continue;
        json_t *line = json_loadb(tail + n, end - n, 0, NULL);
        if (json_is_array(json_object_get(line, "wait")))
            return line;
        json_decref(line);
    }
}

static double sum_of(const json_t *line, const char *key, int first, int n)
{
    const json_t *list = json_object_get(line, key);
    double sum = 0;

    for (int i = first; i < first + n; i++)
        sum += json_number_value(json_array_get(list, (size_t)i));
    return sum;
}

/* *more: `each` wants to hear of others. */
static td__answer tell(td__service *s, td__active *a, char tail[TAIL],
                       bool (*each)(void *arg, const td__worker *w), void *arg, bool *more)
{
    const td__job_spec *p = a->r->spec;
    int n = p->members, processes = td__job_processes(p);
    td__track_member *seen = td__calloc((size_t)n, sizeof *seen);

    if (!seen)
        return td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
    json_t *line = a->r->state == TD_JOB_RUNNING ? last_ranks(s, a->r->id, tail) : NULL;
    for (int i = 0; i < n; i++)
        seen[i] = (td__track_member){.state = TD_MEMBER_WAITING, .exit_status = -1};
    if (a->tracker)
        a->tracker->ops->members(a->tracker, a->r->token, seen, n);
    for (int i = 0; i < n && *more; i++) {
        td__worker w = {.job = a->r,
                        .tracker = *p->tracker ? p->tracker : s->config->tracker,
                        .member = i,
                        .rank = i * processes,
                        .ranks = processes,
                        .seen = &seen[i],
                        .step_seconds = sum_of(line, "seconds", i * processes, processes),
                        .wait_seconds = sum_of(line, "wait", i * processes, processes)};
        *more = each(arg, &w);
    }
    json_decref(line);
    td__free(seen);
    return TD_ANSWER_OK;
}

static bool has_members(const td__job_record *r)
{
    return r->state == TD_JOB_RUNNING || td__service_is_starting(r);
}

static int by_id(const void *a, const void *b)
{
    const td__active *x = *(td__active *const *)a, *y = *(td__active *const *)b;

    return x->r->id - y->r->id;
}

td__answer td__service_workers(td__service *s, int32_t job,
                               bool (*each)(void *arg, const td__worker *w), void *arg)
{
    const td__job_record *r;
    td__answer answer = job ? td__service_get(s, job, &r) : TD_ANSWER_OK;

    if (answer)
        return answer;
    td__active **list = td__calloc((size_t)s->n_active + 1, sizeof *list);
    char *tail = td__malloc(TAIL);
    bool more = true;
    size_t n = 0;
    for (size_t i = 0; list && i < s->n_buckets; i++)
        for (td__active *a = s->active[i]; a; a = a->hash_next)
            if (has_members(a->r) && (!job || a->r->id == job))
                list[n++] = a;
    if (list && tail) {
        qsort(list, n, sizeof *list, by_id);
        for (size_t i = 0; i < n && more && !answer; i++)
            answer = tell(s, list[i], tail, each, arg, &more);
    } else {
        answer = td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
    }
    td__free(tail);
    td__free(list);
    return answer;
}
