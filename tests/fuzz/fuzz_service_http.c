/* fuzz_service_http.c -- what a stranger can put into a request of the HTTP API: the JSON of a
 * submission, the plan of a sweep, the line of a metrics file, paths and headers. The first byte
 * says which. A submission that is taken must be the same after it was written and read again, and
 * none of its secrets may be in what lists show. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "rpc/httpd_impl.h"
#include "service/sweep/sweep.h"

/* Of a spec that has nothing but env: none of its values is in what lists show. */
static void hidden(const td__job_spec *s)
{
    td__job_spec *bare;
    td__text public = {0};
    if (td__spec_create(&bare))
        abort();
    bare->env = s->env;
    td__spec_json_public(bare, &public);
    for (int i = 0; i < s->env.n; i++) {
        bool named = false; /* a name may be the same text */
        for (int k = 0; k < s->env.n; k++)
            named |= strstr(s->env.at[k].key, s->env.at[i].value) != NULL;
        if (strlen(s->env.at[i].value) > 8 && !named && strstr(public.data, s->env.at[i].value))
            abort();
    }
    td__text_fini(&public);
    td__spec_destroy(bare);
}

static void submission(const char *text, size_t nbytes)
{
    td__job_spec *a, *b;
    td__text one = {0}, two = {0};
    if (td__spec_parse(text, nbytes, "request", &a))
        return;
    td__spec_json(a, &one);
    if (one.failed || td__spec_parse(one.data, one.used, "again", &b))
        abort();
    td__spec_json(b, &two);
    if (one.used != two.used || memcmp(one.data, two.data, one.used) != 0)
        abort();
    hidden(a);
    td__text_fini(&one);
    td__text_fini(&two);
    td__spec_destroy(a);
    td__spec_destroy(b);
}

static void sweep(const char *text, size_t nbytes)
{
    td__sweep *s;
    td__asha rungs = {0};
    char value[TD__SWEEP_VALUE];
    int rung = 0;
    if (td__sweep_parse(text, nbytes, "request", &s))
        return;
    for (int64_t i = 0; i < s->trials && i < 4; i++) {
        td__job_spec *trial;
        for (int d = 0; d < s->n_dims; d++)
            td__sweep_value(s, s->trials - 1 - i, d, value);
        if (td__sweep_trial(s, i, &trial))
            abort(); /* the spec was checked with the plan */
        td__spec_destroy(trial);
    }
    (void)td__asha_report(&rungs, s, s->min_steps, 0.5, &rung);
    td__asha_fini(&rungs);
    td__sweep_destroy(s);
}

static void metrics(const char *text, size_t nbytes)
{
    static const char PLAN[] = "metric: accuracy\nspace: {a: [1]}\nspec: {algorithm: t}\n";
    td__sweep *s;
    int64_t step;
    double value;
    if (td__sweep_parse(PLAN, sizeof PLAN - 1, "plan", &s))
        abort();
    (void)td__sweep_read(s, text, nbytes, &step, &value);
    td__sweep_destroy(s);
}

/* No path that is accepted leads upwards, and params lie within it. */
static void path(char *text)
{
    static const char *const PATTERNS[] = {"/v1/jobs/{id}", "/v1/buckets/{bucket}/{key...}",
                                           "/{f}"};
    static const char *const NAMES[] = {"train.example.org", NULL};
    td__httpd_param_value params[TD__HTTPD_PARAMS];
    int n;
    (void)td__guard_host(text, NAMES);
    (void)td__guard_origin(text, "train.example.org", NAMES);
    if (!td__httpd_path_ok(text))
        return;
    if (strstr(text, "/../") || (strlen(text) > 2 && !strcmp(text + strlen(text) - 3, "/..")))
        abort();
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++) {
        char *copy = strdup(text);
        if (td__httpd_match(PATTERNS[i], copy, params, &n))
            for (int k = 0; k < n; k++)
                if (params[k].value < copy || !*params[k].value)
                    abort();
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    if (!nbytes)
        return 0;
    char *text = malloc(nbytes); /* of this size, so that reading too far is seen */
    memcpy(text, data + 1, nbytes - 1);
    text[nbytes - 1] = 0;
    switch (data[0]) {
    case 'j': submission(text, nbytes - 1); break;
    case 's': sweep(text, nbytes - 1); break;
    case 'm': metrics(text, nbytes - 1); break;
    case 'p': path(text); break;
    default: break;
    }
    free(text);
    return 0;
}
