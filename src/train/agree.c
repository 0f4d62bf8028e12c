/* agree.c -- do all ranks train the same job? Ranks make their collective calls without asking
 * each other, because all of them decide by the same numbers. These are compared before the first
 * such call, so that a rank with another job is told what differs, instead of making other calls or
 * waiting for ever.
 *
 * What must be the same is a text with one line for each value: the options that keys.def marks
 * SAME, the job's digest (model, data, loss), and what the data and the command line add. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/key.h"
#include "base/text.h"
#include "graph/backend_auto.h"
#include "plan/schedule.h"
#include "train/trainer_impl.h"

static const td__key KEYS[] = {
#define OWN(...)
#define SAME(...) TD_KEY_ROW(__VA_ARGS__),
#define TD_KEY(...)
#define TD_TRAIN_KEY(path, member, who, ...) \
    who(path, __VA_ARGS__, .to = {TD_OPTION(td__train_opts, member)})
#define TD_TRAIN_KEY_LIST(path, member, n, who, ...) \
    who(path, __VA_ARGS__, .to = {TD_OPTION_LIST(td__train_opts, member, n)})
#include "train/keys.def"
};

/* The sync rule that the job names, and its options. */
static void add_sync(td__text *text, const td__sync_config *c)
{
    const td__sync_ops *rule = c->rule ? td__sync_named(c->rule) : NULL;
    char value[64];
    td__text_printf(text, "train.sync: %s\n", rule ? rule->name : "auto");
    for (const td__key *k = rule ? rule->options : NULL; k && k->path; k++) {
        td__real_text(td__sync_setting_of(c, k), value, sizeof value);
        td__text_printf(text, "train.sync.%s: %s\n", k->path, value);
    }
}

static const char BACKEND[] = "train.backend";

static int64_t count_of(const td__trainer *t, td__part part)
{
    const td__dataset *d = td__data_part(t->plan.data, part);
    return d ? d->count : -1;
}

td_status td__agreement_make(td__trainer *t, const td__train_opts *o)
{
    td__text text = {0};
    char value[1024];
    const char *backend = o->backend ? o->backend : "cpu";
    td__text_printf(&text, "digest of the job: %s\n", o->job_digest ? o->job_digest : "none");
    if (!o->nondeterministic) /* else ranks may compute on processors and GPUs of any kind */
        td__text_printf(&text, "%s: %s\n", BACKEND, backend);
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (strcmp(KEYS[i].path, BACKEND) != 0)
            td__text_printf(&text, "%s: %s\n", KEYS[i].path,
                            td__key_text(&KEYS[i], o, value, sizeof value));
    add_sync(&text, &o->sync);
    const struct {
        const char *name;
        int64_t value;
    } facts[] = {
        {"number of weights", (int64_t)td_params_trainable(t->replica.params)},
        {"number of training samples", count_of(t, TD_PART_TRAIN)},
        {"number of validation samples", count_of(t, TD_PART_VALID)},
        {"number of steps", (int64_t)t->plan.total_steps},
        {"update_late", o->sync.update_late},
        {"--profile", o->profile},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        td__text_printf(&text, "%s: %lld\n", facts[i].name, (long long)facts[i].value);
    if (!o->nondeterministic && td__backend_traits(backend).on_processor)
        td__text_printf(&text, "processor: %s on %s%s%s\n", td__isa_name(td__cpu_isa()),
                        td__cpu_kind(), o->same_processors ? " with " : "",
                        o->same_processors ? td__cpu_more() : "");
    if (!o->nondeterministic && t->replica.state.gpu[0])
        td__text_printf(&text, "GPU: %s\n", t->replica.state.gpu);
    td_status st = td__text_status(&text);
    t->plan.agreement = st ? NULL : td__arena_strdup(t->plan.arena, text.data);
    td__text_fini(&text);
    return st || t->plan.agreement ? st : TD_FAIL(TD_ENOMEM, "no memory for a trainer");
}

uint32_t td__agreement_crc(const td__trainer *t)
{
    return td__crc32c(0, t->plan.agreement, strlen(t->plan.agreement));
}

/* The first line that differs, as "train.batch is 64, but rank 0 has 32". */
static td_status compare(const td__trainer *t, const char *theirs, int root)
{
    const char *a = t->plan.agreement, *b = theirs;
    while (*a && *b) {
        int n = (int)strcspn(a, "\n"), m = (int)strcspn(b, "\n");
        if (n != m || memcmp(a, b, (size_t)n) != 0) {
            const char *colon = strstr(a, ": "), *value = strstr(b, ": ");
            int name = (int)(colon - a), skip = name + 2;
            bool same_row = value && value - b == name && memcmp(a, b, (size_t)name) == 0;
            bool processor = same_row && name == 9 && memcmp(a, "processor", 9) == 0;
            bool backend =
                same_row && name == (int)strlen(BACKEND) && !memcmp(a, BACKEND, strlen(BACKEND));
            return TD_FAIL(TD_EINVAL, "rank %d: %.*s is %.*s, but rank %d has %.*s; %s",
                           td__trainer_rank(t), name, a, n - skip, a + skip, root,
                           same_row ? m - skip : m, same_row ? b + skip : b,
                           processor ? "set parallel.processors to an instruction set that all "
                                       "ranks have"
                           : backend ? "processors and GPUs share a job with train.reproducible "
                                       "false alone"
                                     : "start all ranks with the same job, options and data");
        }
        a += n + 1;
        b += m + 1;
    }
    return *a == *b ? TD_OK
                    : TD_FAIL(TD_EINVAL,
                              "rank %d is another version of the program than rank %d: install "
                              "the same one on all hosts",
                              td__trainer_rank(t), root);
}

td_status td__trainer_agree(td__trainer *t, int root)
{
    uint64_t nbytes = strlen(t->plan.agreement) + 1;
    if (td__trainer_ranks(t) == 1)
        return TD_OK;
    TD_TRY(td_broadcast(t->world.comm, &nbytes, sizeof nbytes, TD_U8, root, NULL));
    if (nbytes < 1 || nbytes > UINT16_MAX)
        return TD_FAIL(TD_EPROTO, "rank %d sent %llu bytes of options", root,
                       (unsigned long long)nbytes);
    char *theirs = td__malloc(nbytes);
    if (!theirs)
        return TD_FAIL(TD_ENOMEM, "no memory for the options of rank %d", root);
    if (td__trainer_rank(t) == root)
        memcpy(theirs, t->plan.agreement, nbytes);
    td_status st = td_broadcast(t->world.comm, theirs, nbytes, TD_U8, root, NULL);
    theirs[nbytes - 1] = '\0';
    if (!st)
        st = compare(t, theirs, root);
    td__free(theirs);
    return st;
}
