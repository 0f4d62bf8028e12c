/* attempt_spec.c -- a group as JSON for its supervisor; see attempt_spec.h. Ports of this host are
 * chosen here, and the GPUs of each process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/attempt_spec.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "launch/message.h"
#include "service/group_env.h"
#include "service/track/free_port.h"
#include "service/track/gpus.h"
#include "service/track/json_io.h"

enum { PATH_BYTES = 4300 };

static void put_texts(json_t *list, const td__texts *t)
{
    const char *text;

    for (size_t at = 0; (text = td__texts_next(t->data, t->used, &at));)
        json_array_append_new(list, json_string(text));
}

/* GPUs [begin, begin + n) of the group's; a group that asked for none is shown none. */
static void add_gpus(td__texts *env, const int *gpus, int begin, int n)
{
    char text[4 * TD__MOST_GPUS];

    td__texts_add(env, "CUDA_VISIBLE_DEVICES=%s",
                  td__gpus_text(gpus + begin, n, text, sizeof text));
}

/* "K=V" of every process; of a command that starts its ranks itself, of that one. */
static json_t *processes_json(const td__group *g, const int *gpus)
{
    const td__job_spec *s = g->spec;
    int each = td__job_processes(s), size = g->own_ranks ? 1 : s->members * each, port = 0;
    td__group_place place = {0};
    json_t *list = json_array();
    const char **workers = td__calloc((size_t)size, sizeof *workers);
    td__arena *a = NULL;
    bool ok = workers && !td__arena_create(&a) && !td__free_ports(size + 2, &port);

    for (int r = 0; ok && r < size; r++)
        ok = (workers[r] = td__arena_printf(a, "127.0.0.1:%d", port + 2 + r)) != NULL;
    place.master_port = port + 1;
    place.workers = workers;
    for (int r = 0; ok && r < size; r++) {
        td__texts env = {0};
        json_t *one = json_array();
        if (g->own_ranks) {
            add_gpus(&env, gpus, 0, s->members * s->gpus);
        } else {
            td__process_env(g, &place, r / each, r % each, &env);
            int share = s->gpus / each;
            add_gpus(&env, gpus, r / each * s->gpus + r % each * share, share);
        }
        put_texts(one, &env);
        json_array_append_new(list, one);
        ok = !env.failed;
        td__texts_fini(&env);
    }
    td__arena_destroy(a);
    td__free(workers);
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *texts_json(const char *const *list)
{
    json_t *out = json_array();

    for (int i = 0; list[i]; i++)
        json_array_append_new(out, json_string(list[i]));
    return out;
}

static json_t *numbers_json(const int *list, int n)
{
    json_t *out = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(out, json_integer(list[i]));
    return out;
}

static json_t *spec_json(const td__group *g, const int *gpus)
{
    char work[PATH_BYTES], artifacts[PATH_BYTES], run[PATH_BYTES];
    const td__job_spec *s = g->spec;
    json_t *processes = processes_json(g, gpus);

    snprintf(work, sizeof work, "%.4200s/work", g->dir);
    snprintf(artifacts, sizeof artifacts, "%.4200s/artifacts", g->dir);
    snprintf(run, sizeof run, "%.4200s/run", g->dir);
    if (!processes)
        return NULL;
    /* A program that starts its ranks itself also restarts them. */
    json_t *spec = json_pack("{s:o, s:o, s:o, s:o, s:i, s:s, s:s, s:i, s:I, s:I}", "argv",
                             texts_json(g->command), "env", texts_json(g->env), "processes",
                             processes, "gpus", numbers_json(gpus, s->members * s->gpus), "each",
                             g->own_ranks ? 1 : td__job_processes(s), "work", work, "artifacts",
                             artifacts, "restarts", g->own_ranks ? 0 : s->member_restarts,
                             "grace_ms", (json_int_t)s->grace_s * 1000, "step_deadline_ms",
                             (json_int_t)(g->own_ranks ? 0 : s->step_deadline_s * 1000));
    if (spec && g->own_ranks)
        json_object_set_new(spec, "run", json_string(run));
    if (spec && s->memory_mb) /* of a member of the supervisor's */
        json_object_set_new(spec, "memory_mb",
                            json_integer(s->memory_mb * (g->own_ranks ? s->members : 1)));
    return spec;
}

td_status td__attempt_write(const char *path, const td__group *g, const int *gpus)
{
    td__text text = {0};
    td__file_out f;
    json_t *spec = spec_json(g, gpus);

    if (spec)
        td__json_write(spec, &text);
    td_status st = spec ? td__text_status(&text)
                        : TD_FAIL(TD_EINVAL, "%s: the spec cannot be written", g->token);
    json_decref(spec);
    if (!st)
        st = td__file_out_open(&f, path);
    if (!st) {
        td__file_out_write(&f, text.data, text.used);
        st = td__file_out_commit(&f);
    }
    td__text_fini(&text);
    return st;
}
