/* compare.h -- several runs of one job beside each other: numbers, a table, a page. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_COMPARE_H
#define TD_RUN_COMPARE_H

#include "base/text.h"
#include "run/report_data.h"

/* One run of one variant. Numbers that are not known are NaN. */
typedef struct td__compare_run {
    const char *name;   /* of the variant */
    const char *what;   /* what it changes, for people; "" nothing */
    const char *dir;    /* the run's directory */
    const char *failed; /* one line: why there is no result; NULL: there is one */
    int ranks, repeat;
    bool interrupted; /* there is a part of a result */

    td__report_data data; /* td__compare_fini */
    double steps, seconds, loss, samples_per_second;
    double step_nbytes;   /* sent by a rank in a step, on average */
    double memory;        /* of the rank that had the most */
    double age, age_most; /* of what arrived from other ranks: mean, and largest */
    double to_target; /* seconds of training until the metric below was there (td__compare_aim) */
    double best;      /* the metric below, at the best step */
    char metric[64];  /* "valid accuracy"; "" */
    char digest[65];  /* of the weights; "" */
} td__compare_run;

/* Fill in what the directory tells. A directory without a run is TD_EINVAL. */
TD_NODISCARD td_status td__compare_read(td__compare_run *r);
void td__compare_fini(td__compare_run *r);

/* How long each run took to the target, a value of its metric; NaN: the worst of their best. The
 * target is returned, NaN if there is none. */
double td__compare_aim(td__compare_run *runs, int n, double target, bool higher_is_better);

/* A variant that was not run, as it cannot be of this job. */
typedef struct td__compare_absent {
    const char *name, *why;
} td__compare_absent;

typedef struct td__compare_opts {
    const char *title;                /* the job's name */
    const char *job;                  /* its file */
    const td__compare_run *at;        /* all runs, those of a variant next to each other */
    int n, repeat;                    /* n is a multiple of repeat */
    double target;                    /* of td__compare_aim */
    bool higher_is_better;            /* the metric */
    const td__compare_absent *absent; /* (n_absent) */
    int n_absent;
} td__compare_opts;
/* A line per variant, aligned, then one for each that is absent: NAME  -  WHY. Speeds and bytes are
 * also given relative to the first variant that went well. */
void td__compare_table(td__text *t, const td__compare_opts *o);
void td__compare_json(td__text *t, const td__compare_opts *o);
/* A page with the table, the best variant first and marked, and the curves of all. */
TD_NODISCARD td_status td__compare_page(const td__compare_opts *o, const char *path);

#endif
