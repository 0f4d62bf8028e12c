/* sweeps.c -- `tandem sweeps`: the sweeps of a training service, and the trials of one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "client/client.h"

static int list(td__client *c)
{
    json_t *answer = NULL, *s;
    size_t i;
    int rc = td__client_call(c, "GET", "/v1/sweeps", NULL, &answer);
    if (rc)
        return rc;
    printf("%6s  %-9s  %-7s  %11s  %-24s  %s\n", "sweep", "state", "search", "trials", "name",
           "best");
    json_array_foreach(json_object_get(answer, "sweeps"), i, s)
    {
        char trials[32], best[64] = "";
        json_t *b = json_object_get(s, "best");
        snprintf(trials, sizeof trials, "%lld of %lld", (long long)td__json_whole(s, "finished"),
                 (long long)td__json_whole(s, "total"));
        if (b)
            snprintf(best, sizeof best, "%s %.4g (job %lld)", td__client_text(s, "metric"),
                     json_number_value(json_object_get(b, "value")),
                     (long long)td__json_whole(b, "job"));
        td__text name = {0};
        td__text_printable(&name, td__client_text(s, "name"));
        printf("%6lld  %-9s  %-7s  %11s  %-24.24s  %s\n", (long long)td__json_whole(s, "id"),
               td__client_text(s, "state"), td__client_text(s, "search"), trials,
               name.data ? name.data : "", best);
        td__text_fini(&name);
    }
    json_decref(answer);
    return TD_EXIT_OK;
}

static int by_value(const void *a, const void *b)
{
    const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
    bool has_x = json_is_number(json_object_get(x, "value"));
    bool has_y = json_is_number(json_object_get(y, "value"));
    double d = json_number_value(json_object_get(x, "value")) -
               json_number_value(json_object_get(y, "value"));
    return has_x != has_y ? has_y - has_x : d < 0 ? -1 : d > 0;
}

static void print_trials(const json_t *s)
{
    const json_t *trials = json_object_get(s, "trials");
    size_t n = json_array_size(trials);
    bool lower = strcmp(td__client_text(s, "goal"), "min") == 0;
    const json_t **order = calloc(n + 1, sizeof *order);
    for (size_t i = 0; order && i < n; i++)
        order[i] = json_array_get(trials, i);
    if (order)
        qsort(order, n, sizeof *order, by_value);
    printf("%6s  %-9s  %8s  %10s  %s\n", "job", "state", "step", td__client_text(s, "metric"),
           "values");
    size_t valued = 0;
    while (order && valued < n && json_is_number(json_object_get(order[valued], "value")))
        valued++;
    for (size_t i = 0; order && i < n; i++) {
        const json_t *t = order[i < valued && !lower ? valued - 1 - i : i];
        const json_t *v;
        const char *name;
        printf("%6lld  %-9s  %8lld  ", (long long)td__json_whole(t, "job"),
               td__client_text(t, "state"), (long long)td__json_whole(t, "step"));
        if (json_is_number(json_object_get(t, "value")))
            printf("%10.4g ", json_number_value(json_object_get(t, "value")));
        else
            printf("%10s ", "");
        void *at = json_object_iter(json_object_get(t, "parameters"));
        for (; at; at = json_object_iter_next(json_object_get(t, "parameters"), at)) {
            name = json_object_iter_key(at);
            v = json_object_iter_value(at);
            printf(" %s=%s", name, json_string_value(v));
        }
        putchar('\n');
    }
    free(order);
}

static int run(const td__args *a)
{
    td__client c = {0};
    int64_t id = 0;
    char path[64];
    json_t *answer = NULL;
    bool cancel = td__args_has(a, "cancel"), one = td__args_count(a) == 1;
    if (one && (!td__parse_int(td__args_at(a, 0), &id) || id < 1))
        return td__usage_error(a, "expected the number of a sweep, found '%s'", td__args_at(a, 0));
    if (cancel && !one)
        return td__usage_error(a, "--cancel needs the number of a sweep");
    int rc = td__client_open(a, &c);
    if (!rc && !one) {
        rc = list(&c);
    } else if (!rc) {
        json_t *body = cancel ? json_object() : NULL;
        snprintf(path, sizeof path, "/v1/sweeps/%lld%s", (long long)id, cancel ? "/cancel" : "");
        rc = td__client_call(&c, cancel ? "POST" : "GET", path, body, &answer);
        if (!rc && td__args_has(a, "json")) {
            json_dumpf(answer, stdout, JSON_INDENT(2));
            putchar('\n');
        } else if (!rc) {
            print_trials(answer);
        }
        json_decref(body);
    }
    json_decref(answer);
    td__client_close(&c);
    return rc;
}

static const td__flag FLAGS[] = {
    {"cancel", 0, NULL, "start no more trials, and cancel those under way", NULL},
    {"json", 0, NULL, "print JSON", NULL},
    TD_CLIENT_FLAGS,
    {0},
};
static const char *const EXAMPLES[] = {"tandem sweeps", "all sweeps", "tandem sweeps 3",
                                       "trials of one, best first", NULL};

const td__command td__command_sweeps = {
    .name = "sweeps",
    .args = "[SWEEP]",
    .summary = "list the sweeps of a training service, or the trials of one",
    .text = "A sweep is started with `tandem submit --sweep FILE`. Trials are jobs: jobs, logs and "
            "watch take their numbers.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .max_args = 1,
    .run = run,
};
