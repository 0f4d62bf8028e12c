/* processor.c -- ranks on unlike processors compute as the least of them does.
 *
 * Which kernels run, and so the last bits, depends on the instruction set and on the kind of
 * processor (tuning tables). oneDNN chooses by itself, by vector extensions and caches too: these
 * cannot be lowered, so where they differ it is said, or refused (same). Before anything is
 * planned, ranks tell each other what they have: all take the lowest instruction set and the kind
 * of rank 0. A run that goes on takes those of its checkpoint, where this processor has them.
 * Elastic ranks plan before they know the others: each takes those of the run's last checkpoint,
 * and those that are then unlike the first ones are refused (train/agree.c), unless the job names
 * the instruction set. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "api/job_run.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/log.h"

/* What a rank tells the others; bytes, of which texts end with a 0. */
typedef struct card {
    td__processor own;
    td__processor past; /* rank 0: of the checkpoint that it goes on with; "": none */
} card;
_Static_assert(sizeof(card) == 2 * sizeof(td__processor), "no holes: it is sent");

static card make_card(const td__job_run *r)
{
    card c = {.own = {.isa = ""}};

    snprintf(c.own.isa, sizeof c.own.isa, "%s", td__isa_name(td__cpu_isa()));
    snprintf(c.own.kind, sizeof c.own.kind, "%s", td__cpu_kind());
    snprintf(c.own.more, sizeof c.own.more, "%s", td__cpu_more());
    bool looks = r->session.members || (r->o.resume && td__job_run_leads(r));
    if (looks && td__checkpoint_processor(r->dir, &c.past))
        c.past = (td__processor){.isa = ""}; /* whoever loads it says what is wrong */
    return c;
}

static bool alike(const td__processor *a, const td__processor *b)
{
    return !strcmp(a->isa, b->isa) && !strcmp(a->kind, b->kind);
}

/* Does oneDNN see the same? */
static bool alike_more(const td__processor *a, const td__processor *b)
{
    return !*a->more || !*b->more || !strcmp(a->more, b->more);
}

/* Unlike for oneDNN alone, of ranks and of a checkpoint. */
static td_status settle_more(const td__job_run *r, const card *cards, int n, bool same)
{
    const td__processor *past = &cards[0].past, *first = &cards[0].own;
    int other = 0;

    for (int i = n - 1; i > 0; i--)
        other = alike_more(&cards[i].own, first) ? other : i;
    if (other && same)
        return TD_FAIL(TD_EINVAL,
                       "rank %d has %s, rank 0 %s, by which oneDNN chooses kernels, and "
                       "parallel.processors is same",
                       other, cards[other].own.more, first->more);
    if (!alike_more(past, first) && same)
        return TD_FAIL(TD_EINVAL,
                       "the run was computed with %s, here are %s, by which oneDNN chooses "
                       "kernels, and parallel.processors is same",
                       past->more, first->more);
    if (td__job_run_leads(r) && other)
        TD_LOG(WARN, TRAIN,
               "rank %d has %s, rank 0 %s: oneDNN may choose other kernels there, whose last bits "
               "differ; parallel.processors: same refuses that",
               other, cards[other].own.more, first->more);
    if (td__job_run_leads(r) && !alike_more(past, first))
        TD_LOG(WARN, TRAIN,
               "the run was computed with %s, here are %s: oneDNN may choose other kernels, whose "
               "last bits differ; parallel.processors: same refuses that",
               past->more, first->more);
    return TD_OK;
}

/* The lowest instruction set of all; *other: the first rank that is unlike rank 0, 0: none. */
static td__isa lowest(const card *cards, int n, int *other)
{
    td__isa least = TD_ISA_COUNT;

    *other = 0;
    for (int i = n - 1; i >= 0; i--) {
        td__isa isa = td__isa_named(cards[i].own.isa);
        least = isa < least ? isa : least;
        *other = alike(&cards[i].own, &cards[0].own) ? *other : i;
    }
    return least;
}

static td_status settle(const td__job_run *r, const card *cards, int n)
{
    bool same = !strcmp(td__job_parallel_opts(r->session.job)->processors, "same");
    const td__processor *past = &cards[0].past, *first = &cards[0].own;
    const char *kind = first->kind;
    int other;
    td__isa isa = lowest(cards, n, &other), before = td__isa_named(past->isa);

    if (isa == TD_ISA_COUNT)
        return TD_FAIL(TD_EPROTO, "a rank has an instruction set that is not known here: install "
                                  "the same version on all hosts");
    if (other && same)
        return TD_FAIL(TD_EINVAL,
                       "rank %d computes with %s on %s, rank 0 with %s on %s, and "
                       "parallel.processors is same",
                       other, cards[other].own.isa, cards[other].own.kind, first->isa, first->kind);
    if (*past->isa && before <= isa) {
        isa = before;
        kind = past->kind;
    } else if (*past->isa && same) {
        return TD_FAIL(TD_EINVAL,
                       "the run was computed with %s on %s, which is not here (%s on %s), and "
                       "parallel.processors is same",
                       past->isa, past->kind, td__isa_name(isa), kind);
    }
    TD_TRY(settle_more(r, cards, n, same));
    if (td__job_run_leads(r) && other)
        TD_LOG(WARN, TRAIN,
               "rank %d computes with %s on %s, rank 0 with %s on %s: all take %s, for the same "
               "bits",
               other, cards[other].own.isa, cards[other].own.kind, first->isa, first->kind,
               td__isa_name(isa));
    if (td__job_run_leads(r) && *past->isa && before > isa)
        TD_LOG(WARN, TRAIN,
               "the run was computed with %s on %s and continues with %s: results will not be "
               "bit-identical to an uninterrupted run",
               past->isa, past->kind, td__isa_name(isa));
    td__cpu_lower(isa, kind);
    return TD_OK;
}

td_status td__job_run_lower(const td__job_run *r)
{
    const char *word = td__job_parallel_opts(r->session.job)->processors;
    td__isa isa = td__isa_named(word), own = td__cpu_isa();

    if (isa == TD_ISA_COUNT) /* lowest, same */
        return TD_OK;
    if (isa > own)
        return TD_FAIL(TD_EINVAL,
                       "parallel.processors is %s, but this processor computes with %s (%s): name "
                       "an instruction set that all have",
                       word, td__isa_name(own), td__cpu_kind());
    td__cpu_lower(isa, "any");
    return TD_OK;
}

td_status td__job_run_processor(const td__job_run *r)
{
    td_comm *comm = r->session.comm;
    int n = comm ? td_comm_size(comm) : 1;
    card own = make_card(r), *all = td__calloc((size_t)n, sizeof *all);

    if (!all)
        return TD_FAIL(TD_ENOMEM, "no memory for the processors of %d ranks", n);
    all[0] = own;
    td_status st = comm ? td_all_gather(comm, &own, all, sizeof own, TD_U8, NULL) : TD_OK;
    for (int i = 0; i < n && !st; i++) {
        td__processor *const said[] = {&all[i].own, &all[i].past};
        for (int k = 0; k < TD_LEN(said); k++) {
            said[k]->isa[sizeof said[k]->isa - 1] = said[k]->kind[sizeof said[k]->kind - 1] = 0;
            said[k]->more[sizeof said[k]->more - 1] = 0;
        }
    }
    if (!st)
        st = settle(r, all, n);
    td__free(all);
    return st;
}
