/* Elastic ranks with pieces of layers, and with replicas that share the optimizer's states, with
 * threads as processes: as test_elastic_pipeline.c. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow full */
#include "support/elastic_sweep.h"

static const arrangement PIECES[] = {{"data=2,tensor=2", MESH(2, 1, 2), 0, 4},
                                     {"tensor=2", MESH(1, 1, 2), 0, 2},
                                     {"pipeline=2,tensor=2", MESH(1, 2, 2), 0, 4}};

/* Replicas share the optimizer's states. */
static const arrangement SHARED[] = {{"data=2,pipeline=2,zero", MESH(2, 2, 1), 1, 4},
                                     {"data=3,pipeline=2,zero", MESH(3, 2, 1), 1, 6},
                                     {"data=2,tensor=2,zero", MESH(2, 1, 2), 1, 4},
                                     {"data=3,pieces,zero", MESH(0, 0, 0), 1, 3}};

TEST(a_rank_with_pieces_dies_at_any_call_of_a_step)
{
    sweep_steps(PIECES, TD_LEN(PIECES));
}

TEST(a_rank_with_pieces_dies_as_the_run_begins)
{
    sweep_generations(PIECES, TD_LEN(PIECES));
}

TEST(the_world_of_ranks_with_pieces_changes)
{
    change_world(PIECES, TD_LEN(PIECES));
}

TEST(a_rank_with_shared_states_dies_at_any_call_of_a_step)
{
    sweep_steps(SHARED, TD_LEN(SHARED));
}

TEST(a_rank_with_shared_states_dies_as_the_run_begins)
{
    sweep_generations(SHARED, TD_LEN(SHARED));
}

TEST(the_world_of_ranks_with_shared_states_changes)
{
    change_world(SHARED, TD_LEN(SHARED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_pieces_dies_at_any_call_of_a_step),
        cmocka_unit_test(a_rank_with_pieces_dies_as_the_run_begins),
        cmocka_unit_test(the_world_of_ranks_with_pieces_changes),
        cmocka_unit_test(a_rank_with_shared_states_dies_at_any_call_of_a_step),
        cmocka_unit_test(a_rank_with_shared_states_dies_as_the_run_begins),
        cmocka_unit_test(the_world_of_ranks_with_shared_states_changes),
    };
    return cmocka_run_group_tests(tests, make_quiet, NULL);
}
