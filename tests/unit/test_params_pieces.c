/* Params that lie piece by piece: users see them row-major; evaluation gives the bits of plain
 * ones; what ranks have of them are ranges that meet nowhere and leave nothing out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "graph/params.h"
#include "graph/tensor.h"
#include "parallel/ownership.h"
#include "parallel/tensor_peers.h"
#include "support/check.h"
#include "tandem/tandem.h"

enum { ROWS = 4, PIECES = 4 };

/* Products cut by outputs and by inputs, biases, a norm that is not cut, uneven rows. */
static td_program *make_program(const td__tensor_cut *cut, bool evaluate)
{
    td_graph *g;
    td_program *p;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(ROWS, 24));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(ROWS));
    td_node *h = td_relu(g, td_nn_linear(g, "fc1", x, 64, NULL));
    h = td_nn_layer_norm(g, "norm", td_nn_linear(g, "fc2", h, 40, NULL), NULL);
    h = td_nn_linear(g, "fc3", h, 37, NULL);
    td_node *loss = td_softmax_cross_entropy(g, h, y, NULL);
    CHECK_OK(td__program_create_tensor(
        g, evaluate ? NULL : loss,
        &(td_program_opts){.evaluate = evaluate, .outputs = &h, .n_outputs = evaluate}, false, cut,
        &p));
    td_graph_destroy(g);
    return p;
}

static td_params *make_params(bool packed, int rank, int ranks)
{
    td__tensor_cut cut = {.pieces = PIECES, .ranks = ranks, .rank = rank, .packed = packed};
    td_program *p = make_program(&cut, false);
    td_params *ps;
    CHECK_OK(td_params_create(p, 7, &ps));
    td_program_destroy(p);
    return ps;
}

static int cut_params(const td_params *ps)
{
    int n = 0;
    for (int i = 0; i < td_params_count(ps); i++)
        n += td__params_pieces(ps, i) != NULL;
    return n;
}

TEST(users_see_them_row_major)
{
    td_params *plain = make_params(false, 0, 1), *packed = make_params(true, 1, 2), *copy = NULL;
    char want[65], got[65], path[] = "/tmp/tandem-pieces-XXXXXX";
    CHECK_EQ_INT(cut_params(plain), 0);
    CHECK_EQ_INT(cut_params(packed), 5);
    CHECK_OK(td_params_digest(plain, want));
    CHECK_OK(td_params_digest(packed, got));
    CHECK(strcmp(got, want) == 0, "%s, not %s", got, want);
    CHECK(memcmp(td_params_block(plain, NULL), td_params_block(packed, NULL),
                 td__params_total(plain) * sizeof(float)) != 0,
          "they lie alike");
    CHECK_OK(td__params_copy(packed, &copy));
    CHECK_EQ_INT(cut_params(copy), 0);
    CHECK_OK(td_params_digest(copy, got));
    CHECK(strcmp(got, want) == 0, "%s, not %s", got, want);

    int fd = mkstemp(path);
    CHECK(fd >= 0, "no file");
    close(fd);
    CHECK_OK(td_params_save(packed, path));
    memset(td_params_block(plain, NULL), 0, td__params_total(plain) * sizeof(float));
    CHECK_OK(td_params_load(plain, path));
    CHECK_OK(td_params_digest(plain, got));
    CHECK(strcmp(got, want) == 0, "%s, not %s", got, want);
    memset(td_params_block(packed, NULL), 0, td__params_total(packed) * sizeof(float));
    CHECK_OK(td_params_load(packed, path));
    CHECK_OK(td_params_digest(packed, got));
    CHECK(strcmp(got, want) == 0, "%s, not %s", got, want);
    unlink(path);
    td_params_destroy(copy);
    td_params_destroy(plain);
    td_params_destroy(packed);
}

static void evaluate(td_params *ps, float *out)
{
    td_program *p = make_program(&(td__tensor_cut){.of = ps}, true);
    td_runner *r;
    size_t nbytes;
    CHECK_OK(td_runner_create(p, ps, &r));
    float *x = td_runner_input(r, "x", &nbytes);
    for (size_t k = 0; k < nbytes / sizeof *x; k++)
        x[k] = (float)(k % 13) / 6 - 1;
    CHECK_OK(td_runner_run(r, (td_run_key){.seed = 1}));
    const float *y = td_runner_output(r, 0, &nbytes);
    CHECK_EQ_INT(nbytes, (size_t)ROWS * 37 * sizeof *y);
    memcpy(out, y, nbytes);
    td_runner_destroy(r);
    td_program_destroy(p);
}

TEST(evaluation_has_the_bits_of_plain_params)
{
    td_params *plain = make_params(false, 0, 1), *packed = make_params(true, 0, 2);
    float a[ROWS * 37], b[ROWS * 37];
    evaluate(plain, a);
    evaluate(packed, b);
    CHECK(memcmp(a, b, sizeof a) == 0, "other outputs");
    td_params_destroy(plain);
    td_params_destroy(packed);
}

/* Every element is on all lanes, or of a param in pieces on one. */
TEST(lanes_have_all_of_it)
{
    td_params *ps = make_params(true, 0, 2);
    size_t total = td__params_total(ps);
    int *seen = td__calloc(total, sizeof *seen);
    for (int lanes = 1; lanes <= PIECES; lanes *= 2) {
        memset(seen, 0, total * sizeof *seen);
        for (int lane = 0; lane < lanes; lane++) {
            td__tensor_walk w = {ps, lanes, lane, {0, total}, 0};
            size_t last = 0;
            for (td__param_range r; td__tensor_own(&w, &r); last = r.end) {
                CHECK(r.begin < r.end && (r.begin > last || !last), "[%zu, %zu) after %zu", r.begin,
                      r.end, last);
                for (size_t k = r.begin; k < r.end; k++)
                    seen[k]++;
            }
        }
        for (int i = 0; i < td_params_count(ps); i++) {
            td_param_info info = td_params_info(ps, i);
            int want = td__params_pieces(ps, i) ? 1 : lanes;
            for (size_t k = 0; k < info.count; k++)
                CHECK(seen[info.offset + k] == want, "%s[%zu]: on %d of %d lanes", info.name, k,
                      seen[info.offset + k], lanes);
        }
    }
    td__free(seen);
    td_params_destroy(ps);
}

/* Two stages of two lanes each, in two replicas: the optimizer of a rank has its pieces of its
 * stage, and all that is not in pieces there. */
TEST(ranks_own_their_pieces)
{
    enum { LANES = 2, RANKS = 8 };
    td_params *ps = make_params(true, 0, LANES);
    int owner[16], group[RANKS], n = td_params_count(ps);
    td__ownership m;
    for (int i = 0; i < n; i++)
        owner[i] = i < n / 2 ? 0 : 4; /* ranks are (stage, replica, lane) */
    for (int r = 0; r < RANKS; r++)
        group[r] = r / 4;
    td__owners owners = {owner, LANES, group};
    CHECK_OK(td__ownership_init_whole(&m, ps, RANKS, &owners, 1 << 20));
    for (int r = 0; r < RANKS; r++) {
        td__optim_range *ranges;
        int n_ranges, stage = r / 4, twin = stage * 4 + r % LANES;
        size_t held = 0, want = 0;
        CHECK_OK(td__ownership_ranges(&m, (td__holding){RANKS, r, twin == r ? -1 : twin}, &ranges,
                                      &n_ranges));
        for (int k = 0; k < n_ranges; k++)
            held += ranges[k].end - ranges[k].begin;
        for (int b = 0; b < m.params; b++) {
            int sole = td__ownership_sole(&m, b);
            want += sole < 0            ? td__shard_count(&m, b, twin)
                    : sole / 4 == stage ? m.begin[b + 1] - m.begin[b]
                                        : 0;
        }
        CHECK_EQ_INT(held, want);
        CHECK(held && held < m.begin[m.params], "rank %d holds %zu elements", r, held);
        td__free(ranges);
    }
    for (int i = 0; i < n; i++) {
        td_param_info info = td_params_info(ps, i);
        int b = td__ownership_bucket(&m, info.offset);
        bool pieces = td__params_pieces(ps, i) != NULL;
        CHECK_EQ_INT(td__ownership_sole(&m, b), pieces ? -1 : owner[i]);
        CHECK_EQ_INT(td__ownership_owner(&m, info.offset + info.count - 1),
                     owner[i] + (pieces ? LANES - 1 : 0));
    }
    td__ownership_fini(&m);
    td_params_destroy(ps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_see_them_row_major),
        cmocka_unit_test(evaluation_has_the_bits_of_plain_params),
        cmocka_unit_test(lanes_have_all_of_it),
        cmocka_unit_test(ranks_own_their_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
