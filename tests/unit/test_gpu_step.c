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
#include "ops/node.h"
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

enum { TOKENS = 22, WIDE = 8, WORDS = 40, AT_ONCE = 8 };

/* dx, dw and loss of a classifier over bf16 rows: fused, or of four nodes whose products are of as
 * many rows at a time. */
static void classify(bool fused, float *out, size_t *n_out)
{
    td_graph *g;
    td_program *p;
    td_runner *r;
    td_params *ps;
    float one = 1, xs[TOKENS * WIDE], ws[WORDS * WIDE];
    int32_t ys[TOKENS];
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_cast(g, td_input(g, "x", TD_F32, TD_SHAPE(TOKENS, WIDE)), TD_BF16),
            *w = td_input(g, "w", TD_F32, TD_SHAPE(WORDS, WIDE)),
            *y = td_input(g, "y", TD_I32, TD_SHAPE(TOKENS)),
            *d = td_constant(g, TD_F32, TD_SCALAR, &one), *dx, *dw, *loss;
    td_attr_linear linear = {.out_dtype = TD_BF16, .rows = AT_ONCE},
                   weight = {.out_dtype = TD_F32, .rows = AT_ONCE};
    td_attr_linear_xent whole = {.out_dtype = TD_F32, .rows = AT_ONCE};
    if (fused) {
        dx = td__node(g, TD_OP_LINEAR_XENT, &whole, (td_node *[]){x, w, y, d}, 4);
        dw = td__part(g, dx, 1);
        loss = td__part(g, dx, 2);
    } else {
        td_node *logits = td__node(g, TD_OP_LINEAR, &linear, (td_node *[]){x, w}, 2);
        td_node *both = td__node(g, TD_OP_XENT_BOTH, &whole.loss, (td_node *[]){logits, y, d}, 3);
        dx = td__node(g, TD_OP_LINEAR_BACK_DATA, &linear, (td_node *[]){both, w}, 2);
        dw = td__node(g, TD_OP_LINEAR_BACK_WEIGHT, &weight, (td_node *[]){both, x}, 2);
        loss = td__part(g, both, 1);
    }
    td_node *outputs[] = {td_cast(g, dx, TD_F32), dw, loss};
    td_program_opts o = {.backend = "cuda",
                         .evaluate = true,
                         .no_rewrites = true,
                         .outputs = outputs,
                         .n_outputs = TD_LEN(outputs)};
    CHECK_OK(td_program_create(g, NULL, &o, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    for (int i = 0; i < TOKENS * WIDE; i++)
        xs[i] = (float)((i * 7919) % 1013) / 500 - 1;
    for (int i = 0; i < WORDS * WIDE; i++)
        ws[i] = (float)((i * 104729) % 1009) / 500 - 1;
    for (int i = 0; i < TOKENS; i++)
        ys[i] = i * 17 % WORDS;
    CHECK_OK(td_runner_set_input(r, "x", xs, sizeof xs));
    CHECK_OK(td_runner_set_input(r, "w", ws, sizeof ws));
    CHECK_OK(td_runner_set_input(r, "y", ys, sizeof ys));
    CHECK_OK(td_runner_run(r, (td_run_key){.seed = 1}));
    *n_out = 0;
    for (int i = 0; i < TD_LEN(outputs); i++) {
        size_t nbytes;
        const void *at = td_runner_output(r, i, &nbytes);
        memcpy(out + *n_out, at, nbytes);
        *n_out += nbytes / sizeof *out;
    }
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
}

/* Data parallel ranks have the fused operator, stages of a pipeline the four nodes. */
TEST(a_classifier_in_parts_has_the_bits_of_its_nodes)
{
    static float want[WORDS * WIDE + TOKENS * WIDE + 1], got[TD_LEN(want)];
    size_t n, m;
    if (!emulated())
        return;
    classify(false, want, &n);
    classify(true, got, &m);
    CHECK_EQ_INT(n, TD_LEN(want));
    CHECK(m == n && memcmp(got, want, sizeof want) == 0, "other bits: %.9g, not %.9g",
          (double)got[n - 1], (double)want[n - 1]);
    CHECK(isfinite(want[n - 1]) && want[n - 1] > 1, "the loss is %g", (double)want[n - 1]);
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
        cmocka_unit_test(a_classifier_in_parts_has_the_bits_of_its_nodes),
        cmocka_unit_test(a_launch_that_fails_names_node_kernel_and_shapes),
        cmocka_unit_test(a_graph_that_fails_names_its_nodes_and_the_way_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
