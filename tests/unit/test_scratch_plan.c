/* test_scratch_plan.c -- large scratch of kernels lies in the block of activations, where nothing
 * is alive while the kernel runs (graph/scratch_plan.c). The reference backend's kernels have much:
 * copies of all that they read and write, in double. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "graph/program_impl.h"
#include "support/check.h"
#include "support/nets.h"

enum { ROWS = 8, WIDE = 1 << 15, DEEP = 6 };

static trained start(bool no_reuse)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(ROWS, WIDE));
    td_node *w =
        td_param(g, "w", TD_SHAPE(WIDE), (td_init){.kind = TD_INIT_UNIFORM, .a = -0.5, .b = 0.5});
    for (int i = 0; i < DEEP; i++)
        x = td_sin(g, td_mul(g, x, w));
    td_program_opts o = {.backend = "ref", .no_reuse = no_reuse, .no_rewrites = true};
    return trained_start(g, td_mean(g, td_square(g, x), NULL, 0, false), &o, 1, "sgd");
}

/* Is output k of n read by step `at`, or later, having been made by then? */
static bool alive(const td_graph *g, const td_node *n, int k, int at)
{
    bool is = n->id == at;
    for (int i = at; i < g->n_nodes && n->id <= at; i++)
        for (int j = 0; j < g->nodes[i]->n_in && !td__op(g->nodes[i]->op)->is_view; j++) {
            int part;
            is = is || (td__view_base(g->nodes[i]->in[j], &part) == n && part == k);
        }
    for (int i = 0; i < g->n_roots && n->id <= at; i++) {
        int part;
        is = is || (td__view_base(g->roots[i].node, &part) == n && part == k);
    }
    return is;
}

TEST(scratch_lies_where_nothing_is_alive)
{
    trained t = start(false);
    const td_graph *g = t.p->g;
    int in_block = 0;
    for (int i = 0; i < t.p->n_steps; i++) {
        const td__step *s = &t.p->steps[i];
        size_t end = s->scratch_offset + s->kernel.scratch;
        if (!s->scratch_in_block)
            continue;
        in_block++;
        CHECK(end <= t.p->space_bytes[TD_SPACE_ACTIVATION], "'%s' has scratch up to %zu of %zu",
              s->node->name, end, t.p->space_bytes[TD_SPACE_ACTIVATION]);
        for (int v = 0; v < g->n_nodes; v++)
            for (int k = 0; k < g->nodes[v]->n_out; k++) {
                const td_node *n = g->nodes[v];
                const td__location *l = td__location_of(t.p, n, k);
                if (td__is_leaf(n) || td__op(n->op)->is_view || l->space != TD_SPACE_ACTIVATION)
                    continue;
                CHECK(!alive(g, n, k, s->node->id) || l->offset >= end ||
                          l->offset + td__desc_bytes(&n->out[k]) <= s->scratch_offset,
                      "scratch of '%s' lies over '%s'", s->node->name, n->name);
            }
    }
    CHECK(in_block > 0, "all of %d steps share their scratch", t.p->n_steps);
    trained_stop(&t);
}

TEST(no_bit_depends_on_it)
{
    static float want[WIDE], xs[ROWS * WIDE];
    for (int i = 0; i < ROWS * WIDE; i++)
        xs[i] = (float)((i * 7919) % 1013) / 300 - 1.5f;
    for (int k = 0; k < 2; k++) {
        trained t = start(k == 0);
        size_t n;
        for (uint32_t i = 0; i < 2; i++) {
            CHECK_OK(td_runner_set_input(t.r, "x", xs, sizeof xs));
            CHECK_OK(td_runner_run(t.r, (td_run_key){.seed = 1, .step = i}));
            CHECK_OK(td_optimizer_step(t.o, t.r, 100));
        }
        const float *block = td_params_block(t.ps, &n);
        CHECK(n >= WIDE, "%zu params", n);
        if (k == 0)
            memcpy(want, block, sizeof want);
        else
            CHECK(memcmp(want, block, sizeof want) == 0, "other bits: %g, not %g", (double)block[0],
                  (double)want[0]);
        trained_stop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_lies_where_nothing_is_alive),
        cmocka_unit_test(no_bit_depends_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
