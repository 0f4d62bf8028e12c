/* job.c -- names of states, and the record of a job; see job.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "service/spec.h"

static const struct {
    const char *name;
    int book;
    bool final;
} STATES[] = {
#define X(id, name, book, final) [TD_JOB_##id] = {name, book, final},
    TD_JOB_STATE_MAP(X)
#undef X
};

const char *td__job_state_name(td__job_state s)
{
    return STATES[s].name;
}

bool td__job_state_parse(const char *name, td__job_state *out)
{
    for (int i = 0; i < TD_JOB_STATE_COUNT; i++)
        if (!strcmp(name, STATES[i].name)) {
            *out = (td__job_state)i;
            return true;
        }
    return false;
}

int td__job_state_book(td__job_state s)
{
    return STATES[s].book;
}

bool td__job_state_final(td__job_state s)
{
    return STATES[s].final;
}

const char *td__exit_class_name(td__exit_class c)
{
    static const char *const NAMES[] = {
#define X(id, name) [TD_EXIT_CLASS_##id] = name,
        TD_EXIT_CLASS_MAP(X)
#undef X
    };
    return NAMES[c];
}

td__exit_class td__exit_class_of(int exit_status)
{
    return exit_status == 0    ? TD_EXIT_CLASS_OK
           : exit_status < 0   ? TD_EXIT_CLASS_LOST
           : exit_status < 128 ? TD_EXIT_CLASS_PERMANENT
                               : TD_EXIT_CLASS_RETRYABLE;
}

const char *td__pairs_get(const td__pairs *p, const char *key)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->at[i].key, key))
            return p->at[i].value;
    return NULL;
}

int td__job_processes(const td__job_spec *s)
{
    return s->processes > 0 ? s->processes : s->gpus > 0 ? s->gpus : 1;
}

void td__job_record_destroy(td__job_record *r)
{
    if (!r)
        return;
    td__spec_destroy(r->spec);
    td__free(r->message);
    td__free(r->data_bucket);
    td__free(r->data_path);
    td__free(r);
}

void td__job_record_say(td__job_record *r, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    td__utf8_clean(text); /* output of programs, and cut by us */
    char *copy = td__strdup(text);
    if (!copy)
        return;
    td__free(r->message);
    r->message = copy;
}
