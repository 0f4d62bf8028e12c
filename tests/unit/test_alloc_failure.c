/* Out of memory at every single allocation of a whole life: build, plan, run, train, save, load.
 * Each failure must come back as TD_ENOMEM through the calls, crash nowhere and leave
 * nothing behind. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <stdio.h>
#include <unistd.h>

#include "support/check.h"
#include "support/nets.h"
#include "tandem/alloc.h"
#include "tandem/tensor.h"

typedef struct life {
    td_graph *g;
    td_program *p, *eval;
    td_params *ps;
    td_runner *r, *er;
    td_optimizer *o;
} life;

static td_status live(life *l, const net *n, td_dtype precision, const char *path)
{
    td_status st = td_graph_create(&l->g);
    if (st)
        return st;
    td_node *loss = n->build(l->g);
    td_program_opts train = {.precision = precision};
    td_program_opts evaluate = {.precision = precision, .evaluate = true};
    if ((st = td_program_create(l->g, loss, &train, &l->p)) ||
        (st = td_program_create(l->g, loss, &evaluate, &l->eval)) ||
        (st = td_params_create(l->p, 1, &l->ps)) || (st = td_runner_create(l->p, l->ps, &l->r)) ||
        (st = td_runner_create(l->eval, l->ps, &l->er)) ||
        (st = td_optimizer_create(&(td_optim_opts){.name = n->optimizer}, l->ps, &l->o)))
        return st;
    net_fill(n, l->r, 1);
    net_fill(n, l->er, 1);
    char digest[65];
    if ((st = td_runner_run(l->r, (td_run_key){0})) || (st = td_optimizer_step(l->o, l->r, 0.01)) ||
        (st = td_runner_run(l->er, (td_run_key){0})) || (st = td_params_save(l->ps, path)) ||
        (st = td_params_load(l->ps, path)))
        return st;
    return td_params_digest(l->ps, digest);
}

static void end(life *l)
{
    td_optimizer_destroy(l->o);
    td_runner_destroy(l->er);
    td_runner_destroy(l->r);
    td_params_destroy(l->ps);
    td_program_destroy(l->eval);
    td_program_destroy(l->p);
    td_graph_destroy(l->g);
}

/* Fail at every allocation of a small net, and at a spread of them for the larger ones. */
static void walk(const net *n, td_dtype precision)
{
    check_tmpdir();
    const char *path = check_path("params.safetensors");
    life whole = {0};
    uint64_t first = td_alloc_get_stats().calls;
    CHECK_OK(live(&whole, n, precision, path));
    end(&whole);
    uint64_t total = td_alloc_get_stats().calls - first;
    uint64_t live_before = td_alloc_get_stats().live;
    uint64_t stride = total / 400 + 1;
    for (uint64_t nth = 1; nth <= total; nth += stride) {
        life l = {0};
        td_alloc_fail_at(nth);
        td_status st = live(&l, n, precision, path);
        td_alloc_fail_at(0);
        CHECK(st == TD_ENOMEM, "%s: allocation %llu of %llu: %s: %s", n->name,
              (unsigned long long)nth, (unsigned long long)total, td_status_name(st),
              td_last_error());
        end(&l);
        CHECK(td_alloc_get_stats().live == live_before, "%s: allocation %llu leaves %lld behind",
              n->name, (unsigned long long)nth,
              (long long)(td_alloc_get_stats().live - live_before));
    }
    check_tmpdir_remove();
}

TEST(every_allocation_may_fail)
{
    for (int i = 0; i < N_NETS; i++) {
        walk(&NETS[i], TD_F32);
        walk(&NETS[i], TD_BF16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
