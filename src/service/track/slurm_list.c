/* slurm_list.c -- see slurm_list.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/slurm_list.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

enum { FRESH_NS = 1000000000 };

struct td__slurm_list {
    td_status (*ask)(void *arg, td__text *out);
    uint64_t (*now)(void);
    void *arg;
    pthread_mutex_t asking; /* who has it asks; others wait for the answer */
    pthread_mutex_t lock;   /* of what follows; never held while asking */
    uint64_t changes, seen; /* counted; as of the answer */
    uint64_t asked_ns;      /* when the answer was asked for; 0: there is none */
    td__text text;
};

td_status td__slurm_list_create(td_status (*ask)(void *arg, td__text *out), uint64_t (*now)(void),
                                void *arg, td__slurm_list **out)
{
    td__slurm_list *s = td__calloc(1, sizeof *s);

    *out = s;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "out of memory for jobs of Slurm");
    s->ask = ask;
    s->now = now;
    s->arg = arg;
    pthread_mutex_init(&s->asking, NULL);
    pthread_mutex_init(&s->lock, NULL);
    return TD_OK;
}

void td__slurm_list_destroy(td__slurm_list *s)
{
    if (!s)
        return;
    td__text_fini(&s->text);
    pthread_mutex_destroy(&s->asking);
    pthread_mutex_destroy(&s->lock);
    td__free(s);
}

void td__slurm_list_changed(td__slurm_list *s)
{
    pthread_mutex_lock(&s->lock);
    s->changes++;
    pthread_mutex_unlock(&s->lock);
}

/* The line of that name, without it. */
static void find_line(const td__text *list, const char *name, td__text *out)
{
    size_t n = strlen(name);

    for (const char *line = list->data; line && *line;) {
        size_t length = strcspn(line, "\n");
        if (length > n && strncmp(line, name, n) == 0 && line[n] == '|') {
            td__text_append(out, line + n + 1, length - n - 1);
            return;
        }
        line += length + (line[length] == '\n');
    }
}

/* From what is there, if it is young enough: not asked for before `changes` of this moment. */
static bool answer(td__slurm_list *s, uint64_t since, const char *name, td__text *out)
{
    pthread_mutex_lock(&s->lock);
    bool fresh = s->asked_ns && s->seen >= since && s->now() - s->asked_ns < FRESH_NS;
    if (fresh)
        find_line(&s->text, name, out);
    pthread_mutex_unlock(&s->lock);
    return fresh;
}

static td_status ask_now(td__slurm_list *s)
{
    td__text text = {0};

    pthread_mutex_lock(&s->lock);
    uint64_t asked = s->now(), seen = s->changes;
    pthread_mutex_unlock(&s->lock);
    td_status st = s->ask(s->arg, &text);
    if (!st)
        st = td__text_status(&text);
    if (st) {
        td__text_fini(&text);
        return st;
    }
    pthread_mutex_lock(&s->lock);
    td__text_fini(&s->text);
    s->text = text;
    s->seen = seen;
    s->asked_ns = asked;
    pthread_mutex_unlock(&s->lock);
    return TD_OK;
}

td_status td__slurm_list_find(td__slurm_list *s, const char *name, td__text *out)
{
    td_status st = TD_OK;

    pthread_mutex_lock(&s->lock);
    uint64_t since = s->changes;
    pthread_mutex_unlock(&s->lock);
    if (answer(s, since, name, out))
        return TD_OK;
    pthread_mutex_lock(&s->asking);
    if (!answer(s, since, name, out)) { /* unless another one has asked meanwhile */
        st = ask_now(s);
        if (!st) {
            pthread_mutex_lock(&s->lock);
            find_line(&s->text, name, out);
            pthread_mutex_unlock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->asking);
    return st;
}
