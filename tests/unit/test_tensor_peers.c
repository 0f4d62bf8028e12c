/* Tensor parallel ranks and the hosts that they are on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/tensor_peers.h"
#include "plan/mesh.h"
#include "support/check.h"

static void test_peers_of_one_host(void **state)
{
    static const int FOUR[] = {0, 0, 0, 0, 1, 1, 1, 1}, THREE[] = {0, 0, 0, 1, 1, 1};
    (void)state;
    CHECK(td__tensor_peers_apart(NULL, 8, 2) == -1, "one host");
    CHECK(td__tensor_peers_apart(FOUR, 8, 2) == -1, "two pairs on each host");
    CHECK(td__tensor_peers_apart(FOUR, 8, 4) == -1, "four on each host");
    CHECK(td__tensor_peers_apart(FOUR, 8, 8) == 0, "eight on two hosts");
    CHECK(td__tensor_peers_apart(THREE, 6, 2) == 2, "ranks 2 and 3 are on two hosts");
    CHECK(td__tensor_peers_apart(THREE, 6, 3) == -1, "three on each host");
}

/* Neighbours along tensor are neighbouring ranks, whatever the other axes are: hosts that have a
 * multiple of them keep them together. */
static void test_meshes_keep_peers_together(void **state)
{
    (void)state;
    for (int data = 1; data <= 3; data++)
        for (int stages = 1; stages <= 4; stages++)
            for (int tensor = 1; tensor <= 8; tensor *= 2) {
                td__rank_mesh m = {{[TD_AXIS_DATA] = data,
                                    [TD_AXIS_PIPELINE] = stages,
                                    [TD_AXIS_TENSOR] = tensor}};
                for (int r = 0; r < td__rank_mesh_ranks(&m); r++) {
                    CHECK(td__rank_mesh_coordinate(&m, r, TD_AXIS_TENSOR) == r % tensor,
                          "rank %d of %d x %d x %d", r, data, stages, tensor);
                    CHECK(td__rank_mesh_coordinate(&m, r, TD_AXIS_DATA) == r / tensor % data,
                          "rank %d of %d x %d x %d", r, data, stages, tensor);
                    CHECK(td__rank_mesh_coordinate(&m, r, TD_AXIS_PIPELINE) == r / tensor / data,
                          "rank %d of %d x %d x %d", r, data, stages, tensor);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers_of_one_host),
        cmocka_unit_test(test_meshes_keep_peers_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
