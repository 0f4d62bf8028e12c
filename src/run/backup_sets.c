/* backup_sets.c -- the `counted` of every step in a metrics.jsonl, or of the lines about the order
 * of messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/backup_sets.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"

typedef struct step_set {
    uint64_t step;
    bool *counted; /* (ranks) */
} step_set;

typedef struct order {
    int32_t *words; /* (n) td__order_event; lines one after another */
    size_t n, room;
} order;

struct td__backup_sets {
    char *path;
    int ranks;
    const char *rule; /* whose orders are read; borrowed until the file is read. NULL: steps are */
    order *orders;    /* (ranks); NULL: the same */
    step_set *at; /* in the order of the file; a step that was made twice counts as the last time */
    size_t n, room;
    uint64_t lines; /* read so far */
    int begins;     /* the run, and each time that it was resumed */
    bool early;     /* it ended before its last step, by its own decision */
};

enum { MOST_RANKS = 4096 + 1024 }; /* of -n, and servers */

void td__backup_sets_destroy(td__backup_sets *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        td__free(s->at[i].counted);
    for (int r = 0; s->orders && r < s->ranks; r++)
        td__free(s->orders[r].words);
    td__free(s->orders);
    td__free(s->at);
    td__free(s->path);
    td__free(s);
}

static td_status check_rank(const td__backup_sets *s, const char *what, uint64_t step,
                            const json_t *rank)
{
    json_int_t r = json_integer_value(rank);
    if (!json_is_integer(rank) || r < 0 || r >= s->ranks)
        return TD_FAIL(TD_EINVAL,
                       "%s: %s %llu counts rank %lld, and there are %d: replay with as many ranks "
                       "as then",
                       s->path, what, (unsigned long long)step, (long long)r, s->ranks);
    return TD_OK;
}

static td_status add(td__backup_sets *s, uint64_t step, const json_t *ranks)
{
    size_t i;
    json_t *rank;
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        step_set *more = td__realloc(s->at, room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu steps of %s", room, s->path);
        s->at = more;
        s->room = room;
    }
    bool *counted = td__calloc((size_t)s->ranks, sizeof *counted);
    if (!counted)
        return TD_FAIL(TD_ENOMEM, "no memory for the steps of %s", s->path);
    s->at[s->n++] = (step_set){step, counted};
    json_array_foreach(ranks, i, rank)
    {
        TD_TRY(check_rank(s, "step", step, rank));
        counted[json_integer_value(rank)] = true;
    }
    return TD_OK;
}

/* ---- Orders ---------------------------------------------------------------------------------- */

static td_status add_word(td__backup_sets *s, order *o, json_int_t word)
{
    if (o->n == o->room) {
        size_t room = o->room ? 2 * o->room : 256;
        int32_t *more = td__realloc(o->words, room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu messages of %s", room, s->path);
        o->words = more;
        o->room = room;
    }
    o->words[o->n++] = (int32_t)word;
    return TD_OK;
}

static td_status add_group(td__backup_sets *s, order *o, uint64_t line, const json_t *group)
{
    size_t i;
    json_t *rank;
    if (!json_is_array(group))
        return TD_FAIL(TD_EINVAL, "%s: the order of messages in line %llu is not lists of ranks",
                       s->path, (unsigned long long)line);
    json_array_foreach(group, i, rank)
    {
        TD_TRY(check_rank(s, "the order of messages in line", line, rank));
        TD_TRY(add_word(s, o, json_integer_value(rank)));
    }
    return add_word(s, o, TD__ORDER_END);
}

static td_status add_order(td__backup_sets *s, const json_t *event, const json_t *groups)
{
    const char *rule = json_string_value(json_object_get(event, "rule"));
    const json_t *rank = json_object_get(event, "rank"), *met = json_object_get(event, "met");
    json_int_t step = json_integer_value(met);
    size_t i;
    json_t *group;
    if (!rule || strcmp(rule, s->rule) != 0)
        return TD_FAIL(TD_EINVAL, "%s is of a run with the sync rule %s, not %s", s->path,
                       rule ? rule : "?", s->rule);
    TD_TRY(check_rank(s, "the order of messages in line", s->lines, rank));
    if (!json_is_array(groups) || (met && (step < 1 || step > INT32_MAX)))
        return TD_FAIL(TD_EINVAL, "%s: the order of messages in line %llu is not whole", s->path,
                       (unsigned long long)s->lines);
    order *o = &s->orders[json_integer_value(rank)];
    json_array_foreach(groups, i, group) TD_TRY(add_group(s, o, s->lines, group));
    if (!met)
        return TD_OK;
    TD_TRY(add_word(s, o, TD__ORDER_MET));
    return add_word(s, o, step);
}

/* The step of the next meeting, and the place after it; 0: there is none. */
static int32_t next_meeting(const order *o, size_t *at)
{
    while (*at < o->n && o->words[*at] != TD__ORDER_MET)
        ++*at;
    *at += 2;
    return *at <= o->n ? o->words[*at - 1] : 0;
}

/* All ranks have met after the same steps, once at least. */
static td_status check_meetings(const td__backup_sets *s)
{
    for (int r = 0; r < s->ranks; r++) {
        size_t first = 0, at = 0;
        int32_t want = 0, got = 0, met = 0;
        do {
            met = want;
            want = next_meeting(&s->orders[0], &first);
            got = next_meeting(&s->orders[r], &at);
        } while (want && got == want && want >= met);
        if (!met && !want && !got)
            return TD_FAIL(TD_EINVAL,
                           "%s: no order of messages is in it: it is not of a whole run with the "
                           "sync rule %s on several ranks",
                           s->path, s->rule);
        if (want || got)
            return TD_FAIL(TD_EINVAL,
                           "%s: the meetings of rank %d are not those of rank 0: lines are missing",
                           s->path, r);
    }
    return TD_OK;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* A run, or what was resumed of it, begins. */
static td_status check_begin(td__backup_sets *s, const json_t *ranks)
{
    s->begins++;
    json_int_t then = json_integer_value(ranks);
    if (json_is_integer(ranks) && then != s->ranks)
        return TD_FAIL(TD_EINVAL,
                       "%s is of a run on %lld ranks, and there are %d: replay with as "
                       "many ranks as then",
                       s->path, (long long)then, s->ranks);
    return TD_OK;
}

static td_status read_line(td__backup_sets *s, const char *line, size_t nbytes)
{
    json_t *event = json_loadb(line, nbytes, 0, NULL);
    const json_t *ranks = json_object_get(event, "counted");
    const char *kind = json_string_value(json_object_get(event, "kind"));
    const char *end = json_string_value(json_object_get(event, "end"));
    json_int_t step = json_integer_value(json_object_get(event, "step"));
    td_status st = TD_OK;
    s->lines++;
    if (!event)
        st = TD_FAIL(TD_EINVAL, "%s: not lines of JSON: %.*s", s->path,
                     (int)(nbytes < 40 ? nbytes : 40), line);
    else if (!s->rule && kind && strcmp(kind, "step") == 0 && !json_is_array(ranks))
        st = TD_FAIL(TD_EINVAL,
                     "%s: step %lld is not one of a run with backup workers "
                     "or parameter servers",
                     s->path, (long long)step);
    else if (kind && strcmp(kind, "begin") == 0)
        st = check_begin(s, json_object_get(event, "ranks"));
    else if (!s->rule && kind && strcmp(kind, "step") == 0)
        st = add(s, (uint64_t)step, ranks);
    else if (s->rule && kind && strcmp(kind, "order") == 0)
        st = add_order(s, event, ranks);
    else if (kind && strcmp(kind, "end") == 0)
        s->early = end && strcmp(end, "early") == 0;
    json_decref(event);
    return st;
}

static td_status read_all(td__backup_sets *s, const char *text, size_t nbytes)
{
    for (const char *end = text + nbytes, *next; text < end; text = next) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text);
        TD_TRY(read_line(s, text, n));
        next = text + n + 1;
    }
    return TD_OK;
}

static td_status read_file(const char *path, int ranks, const char *rule, td__backup_sets **out)
{
    td__file_map map;
    td_status st = TD_OK;

    *out = NULL;
    if (td__file_map_open(&map, path))
        return TD_FAIL(TD_EINVAL, "%s cannot be read; expected the metrics.jsonl of a run with %s",
                       path,
                       rule ? "an asynchronous sync rule" : "backup workers or parameter servers");
    td__backup_sets *s = td__calloc(1, sizeof *s);
    if (s)
        *s =
            (td__backup_sets){.path = td__strdup(path),
                              .ranks = ranks,
                              .rule = rule,
                              .orders = rule ? td__calloc((size_t)ranks, sizeof *s->orders) : NULL};
    if (!s || !s->path || (rule && !s->orders))
        st = TD_FAIL(TD_ENOMEM, "no memory to read %s", path);
    if (!st)
        st = read_all(s, (const char *)map.data, map.nbytes);
    if (!st && rule && ranks > 1)
        st = check_meetings(s);
    td__file_map_close(&map);
    if (st) {
        td__backup_sets_destroy(s);
        return st;
    }
    *out = s;
    return TD_OK;
}

td_status td__backup_sets_read(const char *path, int ranks, td__backup_sets **out)
{
    return read_file(path, ranks, NULL, out);
}

td_status td__backup_sets_read_orders(const char *path, int ranks, const char *rule,
                                      td__backup_sets **out)
{
    return read_file(path, ranks, rule, out);
}

const int32_t *td__backup_sets_order(const td__backup_sets *s, int rank, size_t *n)
{
    *n = s->orders[rank].n;
    return s->orders[rank].words;
}

td_status td__backup_sets_get(const td__backup_sets *s, uint64_t step, bool *counted)
{
    /* A run begins with step 1: a step is at its place, unless the run was resumed. */
    if (step && step <= s->n && s->at[step - 1].step == step) {
        memcpy(counted, s->at[step - 1].counted, (size_t)s->ranks * sizeof *counted);
        return TD_OK;
    }
    for (size_t i = s->n; i > 0; i--)
        if (s->at[i - 1].step == step) {
            memcpy(counted, s->at[i - 1].counted, (size_t)s->ranks * sizeof *counted);
            return TD_OK;
        }
    return TD_FAIL(TD_EINVAL, "%s: has no step %llu", s->path, (unsigned long long)step);
}

td_status td__backup_sets_check_whole(const td__backup_sets *s, uint64_t steps)
{
    uint64_t last = s->n ? s->at[s->n - 1].step : 0;
    bool met = !s->orders || s->ranks == 1 || !steps;
    for (size_t at = 0; s->orders && s->orders[0].n > at;) {
        int32_t step = next_meeting(&s->orders[0], &at);
        last = step ? (uint64_t)step : last;
        met = met || last == steps;
    }
    if (s->begins > 1)
        return TD_FAIL(TD_EINVAL,
                       "%s is of a run that was resumed: what was under way then is not in it, so "
                       "it cannot be replayed",
                       s->path);
    if (last < steps && !s->early)
        return TD_FAIL(TD_EINVAL, "%s ends at step %llu, and the job has %llu: set train.steps",
                       s->path, (unsigned long long)last, (unsigned long long)steps);
    if (!met && last > steps)
        return TD_FAIL(TD_EINVAL,
                       "%s goes on to step %llu, and its ranks did not meet after step %llu, with "
                       "which the job ends: set train.steps",
                       s->path, (unsigned long long)last, (unsigned long long)steps);
    return TD_OK;
}

td_status td__backup_sets_ranks(const char *path, int *out)
{
    td__file_map map;
    if (td__file_map_open(&map, path))
        return TD_FAIL(TD_EINVAL, "%s cannot be read; expected the metrics.jsonl of a run", path);
    const char *text = (const char *)map.data, *stop = memchr(text, '\n', map.nbytes);
    json_t *event = json_loadb(text, stop ? (size_t)(stop - text) : map.nbytes, 0, NULL);
    json_int_t ranks = json_integer_value(json_object_get(event, "ranks"));
    json_decref(event);
    td__file_map_close(&map);
    if (ranks < 1)
        return TD_FAIL(TD_EINVAL, "%s: its first line does not say the number of ranks", path);
    if (ranks > MOST_RANKS)
        return TD_FAIL(TD_EINVAL, "%s: its first line says %lld ranks: at most %d are possible",
                       path, (long long)ranks, MOST_RANKS);
    *out = (int)ranks;
    return TD_OK;
}
