/* report_live.c -- report.html while the run goes on: whoever opens it sees how far it is, and what
 * is there stays if the run is killed.
 *
 * The page is written before the first step, after it, and then as often as costs at most a
 * fiftieth of the time, but not within two seconds. Only lines that are new in metrics.jsonl are
 * read. It is not fsynced, and no reason for a run to fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "run/report_data.h"
#include "run/run_dir.h"

enum { COST_SHARE = 50 };
static const uint64_t LEAST_NS = 2000000000;

typedef struct live {
    td__observer observer;
    td__report_opts o;
    td__report_data d;
    uint64_t written_ns, due_ns; /* 0: not yet */
    bool gave_up;
} live;

static void write_now(live *l)
{
    uint64_t begin = td__clock_ns();
    double gap = l->written_ns ? 1e-9 * (double)(begin - l->written_ns) : 0;

    if (l->gave_up)
        return;
    l->o.every_s = gap > 1e-9 * (double)LEAST_NS ? gap : 1e-9 * (double)LEAST_NS;
    if (td__report_data_more(l->o.dir, &l->d) || td__report_write_live(&l->o, &l->d)) {
        TD_LOG(WARN, TRAIN, "the report is not kept up to date: %s", td_last_error());
        l->gave_up = true; /* a full disk: the end of the run tries again */
    }
    uint64_t end = td__clock_ns(), pause = COST_SHARE * (end - begin);
    l->written_ns = end;
    l->due_ns = end + (pause > LEAST_NS ? pause : LEAST_NS);
}

static td_status on_begin(td__observer *o, const td__train_info *info)
{
    (void)info;
    write_now((live *)o);
    ((live *)o)->due_ns = 0; /* and after the first step */
    return TD_OK;
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    live *l = (live *)o;

    (void)e;
    if (td__clock_ns() >= l->due_ns)
        write_now(l);
    return TD_OK;
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    live *l = (live *)o;

    (void)e;
    if (td__clock_ns() >= l->due_ns)
        write_now(l);
    return TD_OK;
}

td_status td__report_live_create(const td__report_opts *o, td__observer **out)
{
    live *l = td__calloc(1, sizeof *l);

    *out = NULL;
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for the report");
    *l = (live){.observer = {.begin = on_begin, .step = on_step, .eval = on_eval}, .o = *o};
    td__report_data_init(&l->d);
    *out = &l->observer;
    return TD_OK;
}

void td__report_live_destroy(td__observer *o)
{
    live *l = (live *)o;

    if (!l)
        return;
    td__report_data_fini(&l->d);
    td__free(l);
}
