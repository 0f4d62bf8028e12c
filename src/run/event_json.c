/* event_json.c -- events of a run as lines of JSON. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/event_json.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "base/date.h"

enum { TIME_DIGITS = 6, VALUE_DIGITS = 9 /* a float comes back exactly */, CLOCK_DIGITS = 14 };

const char *td__train_end_name(td__train_end end)
{
    switch (end) {
    case TD_TRAIN_DONE: return "done";
    case TD_TRAIN_EARLY: return "early";
    case TD_TRAIN_INTERRUPTED: return "interrupted";
    }
    return "?";
}

static void open_line(td__text *t, const char *kind, uint64_t step)
{
    td__text_printf(t, "{\"kind\": \"%s\", \"step\": %" PRIu64, kind, step);
}

static void close_line(td__text *t)
{
    td__text_add(t, "}\n");
}

void td__json_begin(td__text *t, const td__train_info *e)
{
    open_line(t, "begin", e->first_step);
    td__text_member(t, "name", e->name);
    td__text_member_number(t, "time", td__unix_time(), CLOCK_DIGITS);
    td__text_member_int(t, "steps", (int64_t)e->steps);
    td__text_member_int(t, "steps_per_epoch", (int64_t)e->steps_per_epoch);
    td__text_member_int(t, "batch", e->batch);
    td__text_member_int(t, "params", e->params);
    td__text_member_int(t, "micro_batches", e->micro_batches);
    td__text_member_int(t, "threads", e->threads);
    td__text_member_int(t, "ranks", e->ranks);
    td__text_member(t, "precision", e->precision);
    td__text_member(t, "job", e->job_digest);
    close_line(t);
}

void td__json_step(td__text *t, const td__step_event *e)
{
    open_line(t, "step", e->step);
    td__text_member_int(t, "epoch", (int64_t)e->epoch);
    td__text_member_number(t, "loss", e->loss, VALUE_DIGITS);
    td__text_member_number(t, "lr", e->lr, VALUE_DIGITS);
    if (!(e->grad_norm < 0))
        td__text_member_number(t, "grad_norm", e->grad_norm, VALUE_DIGITS);
    td__text_member_int(t, "samples", e->samples);
    td__text_member_number(t, "seconds", e->seconds, TIME_DIGITS);
    td__text_member_number(t, "data_wait", e->data_wait, TIME_DIGITS);
    td__text_member_number(t, "elapsed", e->elapsed, TIME_DIGITS + 3);
    if (e->counted) {
        td__text_add(t, ", \"counted\": [");
        for (int i = 0; i < e->n_counted; i++)
            td__text_printf(t, "%s%d", i ? ", " : "", e->counted[i]);
        td__text_add(t, "]");
    }
    for (int i = 0; i < e->n_notes; i++) {
        td__text_printf(t, "%s\"%s\": ", i ? ", " : ", \"sync\": {", e->note[i].name);
        td__text_json_number(t, e->note[i].value, VALUE_DIGITS);
    }
    td__text_add(t, e->n_notes ? "}" : "");
    close_line(t);
}

void td__json_eval(td__text *t, const td__eval_event *e)
{
    open_line(t, "eval", e->step);
    td__text_member_int(t, "epoch", (int64_t)e->epoch);
    td__text_member(t, "part", e->part);
    td__text_add(t, ", \"metrics\": {");
    for (int i = 0; i < e->n; i++) {
        if (i)
            td__text_add(t, ", ");
        td__text_json(t, e->name[i]);
        td__text_add(t, ": ");
        td__text_json_number(t, e->value[i], VALUE_DIGITS);
    }
    td__text_printf(t, "}, \"best\": %s", e->best ? "true" : "false");
    td__text_member_number(t, "seconds", e->seconds, TIME_DIGITS);
    close_line(t);
}

void td__json_checkpoint(td__text *t, const td__checkpoint_event *e)
{
    open_line(t, "checkpoint", e->step);
    td__text_member(t, "path", e->path);
    td__text_member_int(t, "nbytes", (int64_t)e->nbytes);
    td__text_member_number(t, "seconds", e->seconds, TIME_DIGITS);
    td__text_member_number(t, "stalled", e->stalled, TIME_DIGITS);
    close_line(t);
}

void td__json_order(td__text *t, const td__order_event *e)
{
    bool open = false, first = true;
    open_line(t, "order", e->step);
    td__text_member(t, "rule", e->rule);
    td__text_member_int(t, "rank", e->rank);
    td__text_add(t, ", \"counted\": [");
    size_t i = 0;
    for (; i < e->n && e->words[i] != TD__ORDER_MET; i++) {
        if (!open)
            td__text_add(t, first ? "[" : ", [");
        if (e->words[i] == TD__ORDER_END)
            td__text_add(t, "]");
        else
            td__text_printf(t, open ? ", %d" : "%d", e->words[i]);
        open = e->words[i] != TD__ORDER_END;
        first = false;
    }
    td__text_add(t, "]");
    if (i + 1 < e->n)
        td__text_member_int(t, "met", e->words[i + 1]);
    close_line(t);
}

/* One number of every rank. */
static void per_rank(td__text *t, const char *key, const td__ranks_event *e, size_t offset)
{
    td__text_printf(t, ", \"%s\": [", key);
    for (int r = 0; r < e->n; r++) {
        const char *rank = (const char *)&e->rank[r];
        td__text_add(t, r ? ", " : "");
        td__text_json_number(t, *(const double *)(const void *)(rank + offset), TIME_DIGITS);
    }
    td__text_add(t, "]");
}

void td__json_ranks(td__text *t, const td__ranks_event *e)
{
    open_line(t, "ranks", e->step);
    td__text_member_int(t, "steps", (int64_t)e->steps);
    per_rank(t, "seconds", e, offsetof(td__rank_times, seconds));
    per_rank(t, "compute", e, offsetof(td__rank_times, compute));
    per_rank(t, "update", e, offsetof(td__rank_times, update));
    per_rank(t, "comm", e, offsetof(td__rank_times, comm));
    per_rank(t, "comm_busy", e, offsetof(td__rank_times, busy));
    per_rank(t, "wait", e, offsetof(td__rank_times, wait));
    per_rank(t, "data", e, offsetof(td__rank_times, data));
    per_rank(t, "nbytes", e, offsetof(td__rank_times, nbytes));
    per_rank(t, "plain_nbytes", e, offsetof(td__rank_times, plain));
    per_rank(t, "memory", e, offsetof(td__rank_times, memory));
    if (e->blame) {
        td__text_add(t, ", \"blame\": [");
        for (int r = 0; r < e->n; r++) {
            td__text_add(t, r ? ", " : "");
            td__text_json_number(t, e->blame[r], TIME_DIGITS);
        }
        td__text_add(t, "]");
    }
    close_line(t);
}

/* Samples that were kept: where they were found, how often room was made, and bytes at the end. */
static void add_samples(td__text *t, const td__block_counters *c)
{
    char name[48];
    for (int l = 0; l < TD_BLOCK_LEVELS; l++) {
        const char *level = td__block_level_name((td__block_level)l);
        snprintf(name, sizeof name, "samples_%s_hits", level);
        td__text_member_int(t, name, (int64_t)c->hits[l]);
        snprintf(name, sizeof name, "samples_%s_evicted", level);
        td__text_member_int(t, name, (int64_t)c->evicted[l]);
        snprintf(name, sizeof name, "samples_%s_nbytes", level);
        td__text_member_int(t, name, (int64_t)c->used[l]);
    }
    td__text_member_int(t, "samples_prepared", (int64_t)c->misses);
    td__text_member_int(t, "samples_passed", (int64_t)c->passed);
}

void td__json_end(td__text *t, const td__train_result *r)
{
    open_line(t, "end", r->step);
    td__text_member(t, "end", td__train_end_name(r->end));
    td__text_member_int(t, "epoch", (int64_t)r->epoch);
    td__text_member_number(t, "seconds", r->seconds, TIME_DIGITS);
    td__text_member_number(t, "samples_per_second", r->samples_per_second, TIME_DIGITS);
    td__text_member_number(t, "train_loss", r->train_loss, VALUE_DIGITS);
    td__text_member_number(t, "best", r->best, VALUE_DIGITS);
    td__text_member_int(t, "best_step", (int64_t)r->best_step);
    if (r->plain_nbytes) {
        td__text_member_int(t, "sent_nbytes", (int64_t)r->sent_nbytes);
        td__text_member_int(t, "plain_nbytes", (int64_t)r->plain_nbytes);
        td__text_member_number(t, "last_ratio", r->last_ratio, TIME_DIGITS);
    }
    td__text_member_int(t, "memory_planned", (int64_t)r->memory_planned);
    td__text_member_int(t, "memory_peak", (int64_t)r->memory_peak);
    td__text_member_int(t, "memory_rank", r->memory_rank);
    if (r->device) {
        td__text_member(t, "device", r->device);
        td__text_member_int(t, "device_requests", (int64_t)r->device_memory.requests);
        td__text_member_int(t, "device_reused", (int64_t)r->device_memory.reused);
        td__text_member_int(t, "device_released", (int64_t)r->device_memory.released);
        td__text_member_int(t, "device_idle", (int64_t)r->device_memory.idle);
        td__text_member_int(t, "device_peak", (int64_t)r->device_memory.peak);
    }
    if (r->keeps_samples)
        add_samples(t, &r->kept);
    if (r->dropped) {
        td__text_add(t, ", \"dropped\": [");
        for (int i = 0; i < r->n_dropped; i++)
            td__text_printf(t, "%s%" PRIu64, i ? ", " : "", r->dropped[i]);
        td__text_add(t, "]");
    }
    td__text_printf(t, ", \"digest\": \"sha256:%s\"", r->digest);
    close_line(t);
}
