/* test_gpu_step.c -- what a step on a GPU asks of the driver, counted by the emulated one
 * (tests/emulator/): a step of the host's takes microseconds only if there are few calls and fewer
 * waits. And what is said of a kernel that fails. Without the emulated driver there is nothing to
 * count. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "graph/program_impl.h"
#include "optim/optimizer.h"
#include "support/check.h"
#include "support/nets.h"

static unsigned long (*calls_of)(const char *name);
static void (*fail_call)(const char *name, unsigned long nth, int result);

/* Is the driver the emulated one? */
static bool emulated(void)
{
    const char *name = td__env_get(TD_ENV_CUDA_DRIVER);
    void *driver = name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    *(void **)&calls_of = driver ? dlsym(driver, "emulated_calls") : NULL;
    *(void **)&fail_call = driver ? dlsym(driver, "emulated_fail") : NULL;
    if (!calls_of)
        print_message("skipped: no emulated driver\n");
    return calls_of && fail_call;
}

enum { BATCH = 4, CHANNELS = 16, NORMS = 6, CLASSES = 5 };

/* Batch norms one after the other, and a classifier. */
static trained start(double clip_norm)
{
    td_graph *g;
    char name[16];
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(BATCH, CHANNELS, 2, 2));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(BATCH));
    for (int i = 0; i < NORMS; i++) {
        snprintf(name, sizeof name, "norm%d", i);
        x = td_nn_batch_norm(g, name, x, NULL);
    }
    x = td_reshape(g, x, TD_SHAPE(BATCH, CHANNELS * 4));
    td_node *w = td_param(g, "w", TD_SHAPE(CHANNELS * 4, CLASSES),
                          (td_init){.kind = TD_INIT_XAVIER_UNIFORM});
    td_node *loss = td_softmax_cross_entropy(g, td_matmul(g, x, w, false, false), y, NULL);
    trained t = trained_start(g, loss, &(td_program_opts){.backend = "cuda"}, 1, NULL);
    td_optim_opts adam = {.name = "adamw", .clip_norm = clip_norm};
    CHECK_OK(td_optimizer_create(&adam, t.ps, &t.o));
    float *xs = calloc(BATCH * CHANNELS * 4, sizeof *xs);
    int32_t ys[BATCH] = {1, 4, 0, 2};
    for (int i = 0; i < BATCH * CHANNELS * 4; i++)
        xs[i] = (float)((i * 7919) % 1013) / 500 - 1;
    CHECK_OK(td_runner_set_input(t.r, "x", xs, BATCH * CHANNELS * 4 * sizeof *xs));
    CHECK_OK(td_runner_set_input(t.r, "y", ys, sizeof ys));
    free(xs);
    return t;
}

static void step(trained *t, uint32_t i)
{
    CHECK_OK(td_runner_run(t->r, (td_run_key){.seed = 1, .step = i}));
    CHECK_OK(td_optimizer_step(t->o, t->r, 0.01));
}

TEST(a_step_makes_few_calls)
{
    static const struct {
        const char *name;
        unsigned long most;
    } MOST[] = {{"cuGraphLaunch", 1},   {"cuLaunchKernel", 3}, {"cuMemcpyAsync", 2},
                {"cuEventRecord", 4},   {"cuEventQuery", 4},   {"cuPointerGetAttribute", 4},
                {"cuCtxSetCurrent", 0}, {"cuMemAlloc_v2", 0},  {"cuStreamSynchronize", 0}};
    if (!emulated())
        return;
    trained t = start(0.01);
    for (uint32_t i = 0; i < 3; i++)
        step(&t, i);
    unsigned long before[TD_LEN(MOST)], all = calls_of(NULL);
    for (int k = 0; k < TD_LEN(MOST); k++)
        before[k] = calls_of(MOST[k].name);
    step(&t, 3);
    for (int k = 0; k < TD_LEN(MOST); k++) {
        unsigned long made = calls_of(MOST[k].name) - before[k];
        print_message("%s: %lu\n", MOST[k].name, made);
        CHECK(made <= MOST[k].most, "%s: %lu calls a step, at most %lu", MOST[k].name, made,
              MOST[k].most);
    }
    print_message("calls a step: %lu\n", calls_of(NULL) - all);
    CHECK(calls_of(NULL) - all <= 20, "%lu calls a step", calls_of(NULL) - all);
    trained_stop(&t);
}

/* The sums of all params at once are added as those of one after the other. */
TEST(the_norm_has_the_bits_of_single_sums)
{
    if (!emulated())
        return;
    trained t = start(0.01);
    for (uint32_t i = 0; i < 3; i++) {
        size_t count;
        td__tree_sum sum = {.n = 0};
        CHECK_OK(td_runner_run(t.r, (td_run_key){.seed = 1, .step = i}));
        const float *grads = td_runner_grads(t.r, &count);
        for (int k = 0; k < td_params_count(t.ps); k++) {
            td_param_info info = td_params_info(t.ps, k);
            if (!info.is_state)
                td__tree_add(&sum, td__optim_param_squares(t.o, grads + info.offset, info.count));
        }
        CHECK_OK(td_optimizer_step(t.o, t.r, 0.01));
        double want = sqrt(td__tree_total(&sum)), got = td_optimizer_grad_norm(t.o);
        CHECK(want > 0 && memcmp(&want, &got, sizeof want) == 0, "%.17g, one by one %.17g", got,
              want);
    }
    trained_stop(&t);
}

/* Running means and variances of all norms are one blend, which does to each what its own would. */
TEST(states_are_folded_in_by_one_launch)
{
    if (!emulated())
        return;
    trained t = start(0);
    CHECK_OK(td_runner_run(t.r, (td_run_key){.seed = 1}));
    size_t n, first = td_params_trainable(t.ps);
    const float *block = td_params_block(t.ps, &n), *grads = td_runner_grads(t.r, NULL);
    float want[2 * NORMS * CHANNELS];
    CHECK_EQ_INT(n - first, TD_LEN(want));
    for (size_t i = 0; i < TD_LEN(want); i++) {
        float w = 0.1f;
        want[i] = (1 - w) * block[first + i] + w * grads[t.ps->dense + i];
    }
    unsigned long launches = calls_of("cuLaunchKernel");
    td_runner_update_states(t.r);
    CHECK_EQ_INT(calls_of("cuLaunchKernel") - launches, 1);
    CHECK(memcmp(block + first, want, sizeof want) == 0, "other states: %g, not %g",
          (double)block[first], (double)want[0]);
    trained_stop(&t);
}

/* Branches change no bit; the emulated driver does what a branch has as late as it
 * may be done, and fails a graph with a branch that is not joined. */
static void bits_of(const char *branches, const char *net_name, float *out, size_t *n_out)
{
    const net *n = NETS;
    while (n < NETS + N_NETS && strcmp(n->name, net_name) != 0)
        n++;
    if (*branches)
        setenv("TANDEM_CUDA_BRANCHES", branches, 1);
    trained t;
    if (n == NETS + N_NETS) {
        t = start(0);
    } else {
        td_graph *g;
        CHECK_OK(td_graph_create(&g));
        td_node *loss = n->build(g);
        t = trained_start(g, loss, &(td_program_opts){.backend = "cuda"}, 1, "adamw");
        net_fill(n, t.r, 3);
    }
    unsetenv("TANDEM_CUDA_BRANCHES");
    unsigned long forks = calls_of("cuStreamWaitEvent");
    for (uint32_t i = 0; i < 3; i++)
        step(&t, i);
    size_t count;
    const float *block = td_params_block(t.ps, &count);
    CHECK(strcmp(branches, "all") != 0 || n == NETS + N_NETS ||
              calls_of("cuStreamWaitEvent") - forks >= 3,
          "%s: %lu waits, no branch", net_name, calls_of("cuStreamWaitEvent") - forks);
    CHECK(count <= *n_out, "%zu params", count);
    memcpy(out, block, count * sizeof *out);
    *n_out = count;
    trained_stop(&t);
}

TEST(branches_have_the_same_bits)
{
    enum { MOST = 1 << 20 };
    static const char *const WAYS[] = {"all", ""};
    static const char *const SOME[] = {"norms", "mlp", "gpt"};
    static float want[MOST], got[MOST];
    if (!emulated())
        return;
    for (int k = 0; k < TD_LEN(SOME); k++) {
        size_t n = MOST;
        bits_of("none", SOME[k], want, &n);
        for (int w = 0; w < TD_LEN(WAYS); w++) {
            size_t m = MOST;
            bits_of(WAYS[w], SOME[k], got, &m);
            CHECK(m == n && memcmp(got, want, n * sizeof *want) == 0,
                  "%s: other bits with branches %s", SOME[k], WAYS[w]);
        }
    }
}

/* Nodes that clear memory become kernels when a graph has been recorded, and do the same. */
TEST(graphs_clear_by_kernels)
{
    enum { MOST = 1 << 20 };
    static float want[MOST], got[MOST];
    size_t n = MOST, m = MOST;
    if (!emulated())
        return;
    setenv("TANDEM_CUDA_WAIT", "1", 1);
    bits_of("", "gpt", want, &n);
    unsetenv("TANDEM_CUDA_WAIT");
    unsigned long cleared = calls_of("cuGraphMemsetNodeGetParams"),
                  made = calls_of("cuGraphAddKernelNode_v2"), gone = calls_of("cuGraphDestroyNode");
    bits_of("", "gpt", got, &m);
    cleared = calls_of("cuGraphMemsetNodeGetParams") - cleared;
    CHECK(cleared > 0, "no graph clears memory");
    CHECK_EQ_INT(calls_of("cuGraphAddKernelNode_v2") - made, cleared);
    CHECK_EQ_INT(calls_of("cuGraphDestroyNode") - gone, cleared);
    CHECK(m == n && memcmp(got, want, n * sizeof *want) == 0, "other bits than by memsets");
}

static void says(const char *const *parts)
{
    for (; *parts; parts++)
        CHECK(strstr(td_last_error(), *parts), "no \"%s\" in: %s", *parts, td_last_error());
}

TEST(a_launch_that_fails_names_node_kernel_and_shapes)
{
    enum { LAUNCH_FAILED = 719 };
    static const char *const PARTS[] = {"node '", " of f32(4, 16, 2, 2)", "device cuda: kernel ",
                                        "blocks of ", NULL};
    if (!emulated())
        return;
    trained t = start(0);
    fail_call("cuLaunchKernel", 1, LAUNCH_FAILED);
    CHECK_STATUS(td_runner_run(t.r, (td_run_key){.seed = 1}), TD_EIO);
    says(PARTS);
    trained_stop(&t);
}

TEST(a_graph_that_fails_names_its_nodes_and_the_way_to_one)
{
    enum { ILLEGAL_ADDRESS = 700 };
    static const char *const GRAPH[] = {"a kernel failed", "ILLEGAL_ADDRESS", "in a graph of ",
                                        "TANDEM_CUDA_WAIT=1", NULL};
    static const char *const ONE[] = {"node '", " of f32(4, 16, 2, 2)", "ILLEGAL_ADDRESS", NULL};
    if (!emulated())
        return;
    for (int waits = 0; waits < 2; waits++) {
        if (waits)
            setenv("TANDEM_CUDA_WAIT", "1", 1);
        trained t = start(0);
        if (!waits) /* recorded */
            CHECK_OK(td_runner_run(t.r, (td_run_key){.seed = 1}));
        fail_call("cuEventQuery", 1, ILLEGAL_ADDRESS);
        CHECK_STATUS(td_runner_run(t.r, (td_run_key){.seed = 1}), TD_EIO);
        says(waits ? ONE : GRAPH);
        unsetenv("TANDEM_CUDA_WAIT");
        trained_stop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_makes_few_calls),
        cmocka_unit_test(the_norm_has_the_bits_of_single_sums),
        cmocka_unit_test(states_are_folded_in_by_one_launch),
        cmocka_unit_test(branches_have_the_same_bits),
        cmocka_unit_test(graphs_clear_by_kernels),
        cmocka_unit_test(a_launch_that_fails_names_node_kernel_and_shapes),
        cmocka_unit_test(a_graph_that_fails_names_its_nodes_and_the_way_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
