/* check_plan.c -- see check_plan.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "check_plan.h"

#include "base/fail.h"
#include "base/file.h"
#include "train/plan.h"

/* What is expected of links between ranks: memory of a host, or a network of 10 Gbit/s. */
static const td__plan_link MEMORY = {1e-6, 5e9}, NETWORK = {20e-6, 1.25e9};

const td__plan_link *td__check_link(bool shared)
{
    return shared ? &MEMORY : &NETWORK;
}

const char *td__check_link_text(bool shared)
{
    return shared ? "memory of 5 GB/s" : "links of 10 Gbit/s";
}

static td_status write_timeline(const td__plan *p, const td__plan_times *times, const char *path)
{
    td__text text = {0};
    td__file_out f;
    td__plan_trace(p, times, &text);
    td_status st = td__text_status(&text);
    if (!st)
        st = td__file_out_open(&f, path);
    if (!st) {
        td__file_out_write(&f, text.data, text.used);
        st = td__file_out_commit(&f);
    }
    td__text_fini(&text);
    return st;
}

td_status td__check_print_plan(const td__plan *p, const td__plan_times *times, const char *file)
{
    td__text text = {0};
    td__plan_print(p, times, &text);
    td_status st = td__text_status(&text);
    if (!st)
        printf("\n%s", text.data);
    td__text_fini(&text);
    return st || !file ? st : write_timeline(p, times, file);
}

static td_status print_all(const td__plan *p, bool shared, const char *file)
{
    td__plan_times times;
    char hex[65];
    TD_TRY(td__plan_digest(p, hex));
    printf("  plan sha256:%s, without deadlock\n", hex);
    TD_TRY(td__plan_time(p, td__check_link(shared), &times));
    printf("  a step is expected to take %.3g ms, %.1f %% of it waiting: processors of 20 GFLOP/s, "
           "%s\n",
           1e3 * times.total, 100 * td__plan_bubble(&times), td__check_link_text(shared));
    td_status st = td__check_print_plan(p, &times, file);
    td__plan_times_fini(&times);
    return st;
}

td_status td__check_plan(const td__session *s, const td__memory_case *c, const char *file)
{
    const td__sync_ops *rule;
    td__plan *plan;
    TD_TRY(td__trainer_step_plan(s->trainer, c, &rule, &plan));
    if (!plan && file)
        return TD_FAIL(TD_EINVAL, "--plan=%s: the sync rule %s has no plan of a step: %s", file,
                       rule->name, rule->unplanned);
    printf("\nsync rule %s, %d rank%s\n", rule->name, c->ranks, c->ranks > 1 ? "s" : "");
    if (!plan) {
        printf("  no plan of a step: %s; waits have a deadline and the watchdog looks at them\n",
               rule->unplanned);
        return TD_OK;
    }
    td_status st = print_all(plan, c->shared || c->ranks == 1, file);
    td__plan_destroy(plan);
    return st;
}
