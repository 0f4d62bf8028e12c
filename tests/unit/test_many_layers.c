/* A job with thousands of layers: from its text to a runner in a time that grows with their number,
 * not with its square. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job/job.h"
#include "support/check.h"
#include "tandem/program.h"

static const td__field FIELDS[] = {{.name = "x", .dtype = TD_F32, .shape = {1, {4}}},
                                   {.name = "y", .dtype = TD_I32, .classes = 3}};

static char *job_text(int layers, size_t *nbytes)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, nbytes);
    fprintf(to, "model:\n");
    for (int i = 0; i < layers; i++)
        fprintf(to, "  - {linear: 4, act: %s}\n", i % 2 ? "relu" : "tanh");
    fprintf(to, "  - linear\ndata: digits\ntrain: {epochs: 1}\n");
    fclose(to);
    return text;
}

static void build(const char *text, size_t nbytes, int layers)
{
    td__job *j;
    td__model m;
    td__model_nodes nodes;
    td_graph *g;
    td_program *p;
    td_params *ps;
    td_runner *r;
    CHECK_OK(td__job_parse(text, nbytes, "job.yaml", NULL, 0, &j));
    CHECK_OK(td__job_model(j, FIELDS, 2, &m));
    CHECK_OK(td_graph_create(&g));
    CHECK_OK(m.build(m.user, g, 2, &nodes));
    CHECK_OK(td_program_create(g, nodes.loss, &(td_program_opts){.backend = "null"}, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    CHECK_EQ_INT(td_params_count(ps), 2 * (layers + 1));
    CHECK(td_params_find(ps, "linear2.weight") >= 0, "linear2 is not there");
    CHECK_EQ_INT(td_params_find(ps, "linear0.weight"), -1);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
    td__job_destroy(j);
}

/* Processor time, the least of three: what else runs on the machine adds little to it. */
static double seconds(int layers)
{
    size_t nbytes;
    char *text = job_text(layers, &nbytes);
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        clock_t before = clock();
        build(text, nbytes, layers);
        double took = (double)(clock() - before) / CLOCKS_PER_SEC;
        least = took < least ? took : least;
    }
    free(text);
    return least;
}

TEST(time_grows_with_the_number_of_layers)
{
    enum { FEW = 500, TIMES = 8 };
    double few = seconds(FEW), many = seconds(FEW * TIMES);
    print_message("%d layers: %.3f s, %d layers: %.3f s, %.1f times as long\n", FEW, few,
                  FEW * TIMES, many, many / few);
    CHECK(many < 2.5 * TIMES * few, "%d times as many layers take %.1f times as long", TIMES,
          many / few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_grows_with_the_number_of_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
