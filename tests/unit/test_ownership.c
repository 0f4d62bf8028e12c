/* The ownership map: every element has one owner and, with mirrors, two holders; and from one map
 * to another every rank gets each element that it is to hold exactly once, from one that has it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "parallel/reshard.h"
#include "support/check.h"
#include "tandem/tandem.h"

enum { MOST_RANKS = 9, BUCKET = 64 << 10 };

/* Dense params of several chunks, small ones, a row-sparse table, running averages. */
static td_params *make_params(void)
{
    td_graph *g;
    td_program *p;
    td_params *ps;
    CHECK_OK(td_graph_create(&g));
    td_node *ids = td_input(g, "x", TD_I32, TD_SHAPE(4)),
            *y = td_input(g, "y", TD_I32, TD_SHAPE(4));
    td_node *h = td_nn_embedding(g, "table", ids, 50, 96, &(td_nn_embedding_opts){.sparse = true});
    h = td_nn_batch_norm(g, "norm", td_nn_linear(g, "fc1", h, 700, NULL), NULL);
    h = td_nn_linear(g, "fc3", td_nn_linear(g, "fc2", h, 33, NULL), 7, NULL);
    td_node *loss = td_softmax_cross_entropy(g, h, y, NULL);
    CHECK_OK(td_program_create(g, loss, NULL, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    td_program_destroy(p);
    td_graph_destroy(g);
    return ps;
}

static unsigned draw(uint64_t seed, uint64_t *n, unsigned below)
{
    td__rng_key key = {.seed = seed};
    return td__rng_u32(&key, (*n)++) % below;
}

/* ---- One map --------------------------------------------------------------------------------- */

static void check_map(td_params *ps, int ranks, size_t nbytes)
{
    td__ownership m;
    size_t at = 0, owned = 0;
    CHECK_OK(td__ownership_init(&m, ps, ranks, nbytes));
    CHECK_EQ_INT(m.n_whole, 1);
    CHECK(m.params > 1, "%d buckets", m.params);
    for (int b = 0; b < m.n; b++) {
        CHECK_EQ_INT(m.begin[b], at);
        for (int r = 0; r < ranks; r++) {
            size_t begin = td__shards_of(&m, b)[r], n = td__shard_count(&m, b, r);
            CHECK(begin == at, "bucket %d, rank %d: begins at %zu, not %zu", b, r, begin, at);
            CHECK(n <= td__shard_widest(&m, b), "%zu elements", n);
            for (size_t k = 0; b < m.params && n && k < 2; k++) {
                CHECK_EQ_INT(td__ownership_owner(&m, k ? at + n - 1 : at), r);
                CHECK_EQ_INT(td__ownership_bucket(&m, k ? at + n - 1 : at), b);
            }
            at += n;
        }
    }
    CHECK_EQ_INT(at, m.total);
    for (int r = 0; r < ranks; r++)
        owned += td__ownership_owned(&m, r);
    CHECK_EQ_INT(owned, m.total);
    td__ownership_fini(&m);
}

TEST(every_element_has_one_owner)
{
    td_params *ps = make_params();
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        check_map(ps, ranks, BUCKET);
        check_map(ps, ranks, 1);
    }
    td_params_destroy(ps);
}

/* Params held whole: a bucket is its owner's, however small or large the buckets. */
TEST(params_that_are_held_whole)
{
    enum { RANKS = 4 };
    td_params *ps = make_params();
    int owner[16] = {0}, n = td_params_count(ps);
    CHECK(n <= 16, "%d params", n);
    for (int i = 0; i < n; i++)
        owner[i] = (i * 7 + 2) / 3 % RANKS;
    for (size_t nbytes = 1; nbytes <= (size_t)16 << 20; nbytes <<= 8) {
        td__ownership m;
        CHECK_OK(td__ownership_init_whole(&m, ps, RANKS, &(td__owners){.owner = owner}, nbytes));
        for (int i = 0; i < n; i++) {
            td_param_info info = td_params_info(ps, i);
            if (info.is_state || info.sparse)
                continue;
            int first = td__ownership_bucket(&m, info.offset);
            CHECK_EQ_INT(td__ownership_bucket(&m, info.offset + info.count - 1), first);
            CHECK_EQ_INT(td__ownership_sole(&m, first), owner[i]);
            CHECK_EQ_INT(td__ownership_owner(&m, info.offset), owner[i]);
        }
        CHECK_EQ_INT(m.begin[m.n], m.total);
        td__ownership_fini(&m);
    }
    td_params_destroy(ps);
}

/* Ranges are sorted, apart, and hold the shards of two ranks and the table. */
TEST(ranges_of_a_holding)
{
    td_params *ps = make_params();
    td__ownership m;
    CHECK_OK(td__ownership_init(&m, ps, 5, BUCKET));
    for (int rank = 0; rank < 5; rank++)
        for (int mirror = -1; mirror < 5; mirror++) {
            td__optim_range *ranges;
            td__holding h = {5, rank, mirror};
            size_t end = 0;
            int n, i = 0;
            if (mirror == rank)
                continue;
            CHECK_OK(td__ownership_ranges(&m, h, &ranges, &n));
            for (int k = 0; k < n; k++) {
                CHECK(ranges[k].begin < ranges[k].end && (!k || ranges[k].begin > end), "range %d",
                      k);
                end = ranges[k].end;
            }
            for (size_t x = 0; x < td__ownership_params(&m); x += 16) {
                while (ranges[i].end <= x)
                    i++;
                CHECK_EQ_INT(ranges[i].begin <= x, td__holding_has(h, td__ownership_owner(&m, x)));
            }
            CHECK_EQ_INT(end, m.whole[0].end);
            td__free(ranges);
        }
    td__ownership_fini(&m);
    td_params_destroy(ps);
}

/* Everybody is mirrored once, on another host wherever that is possible. */
TEST(mirrors_are_on_other_hosts)
{
    static const struct {
        int n, host_of[6], together; /* ranks whose mirror is on their own host */
    } CASES[] = {{2, {0, 0}, 2},          {2, {0, 1}, 0},
                 {4, {0, 0, 1, 1}, 0},    {6, {0, 0, 1, 1, 2, 2}, 0},
                 {5, {0, 1, 0, 1, 2}, 0}, {4, {0, 0, 0, 1}, 2}};
    td__holding h[6];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int n = CASES[i].n, together = 0;
        unsigned mirrored = 0;
        CHECK_OK(td__holdings_of(CASES[i].host_of, NULL, n, h));
        for (int r = 0; r < n; r++) {
            int of = h[r].mirror;
            CHECK(h[r].ranks == n && h[r].rank == r, "rank %d holds %d", r, h[r].rank);
            CHECK(of >= 0 && of < n && of != r, "rank %d mirrors %d", r, of);
            mirrored |= 1u << of;
            together += CASES[i].host_of[of] == CASES[i].host_of[r];
        }
        CHECK(mirrored == (1u << n) - 1, "case %zu: somebody is not mirrored", i);
        CHECK_EQ_INT(together, CASES[i].together);
    }
    CHECK_OK(td__holdings_of(NULL, NULL, 1, h));
    CHECK_EQ_INT(h[0].mirror, -1);
}

/* ---- From one map to another ----------------------------------------------------------------- */

/* A world before and after: `n` ranks are there now; those below `old` were there before. */
typedef struct change {
    int n;
    td__holder from[MOST_RANKS];
    td__holding to[MOST_RANKS];
} change;

/* Is the element in the holding? By the ranges, not as the planner finds it. */
static bool contains(td_params *ps, td__holding h, size_t x)
{
    td__ownership m;
    bool yes;
    if (!h.ranks)
        return false;
    CHECK_OK(td__ownership_init(&m, ps, h.ranks, BUCKET));
    int b = td__ownership_bucket(&m, x);
    const size_t *cut = td__shards_of(&m, b);
    yes = (cut[h.rank] <= x && x < cut[h.rank + 1]) ||
          (h.mirror >= 0 && cut[h.mirror] <= x && x < cut[h.mirror + 1]);
    td__ownership_fini(&m);
    return yes;
}

static bool held(td_params *ps, const td__holder *h, size_t x)
{
    for (int i = 0; i < h->n; i++)
        if (contains(ps, h->of[i], x))
            return true;
    return false;
}

/* Elements are looked at by the smallest pieces that maps are made of. */
enum { STEP = 16 };

static size_t check_change(td_params *ps, const change *c)
{
    td__reshard p;
    CHECK_OK(td__reshard_plan(&p, ps, &(td__worlds){.nbytes = BUCKET}, c->n, c->from, c->to));
    size_t cells = p.params / STEP, missing = 0;
    unsigned char *got = td__calloc(cells * (size_t)c->n + 1, 1);
    CHECK(got, "no memory");
    for (size_t i = 0; i < p.n; i++) {
        td__transfer x = p.at[i];
        CHECK(x.begin < x.end && x.end <= p.params, "elements [%zu, %zu)", x.begin, x.end);
        CHECK(x.begin % STEP == 0 && x.end % STEP == 0, "elements [%zu, %zu)", x.begin, x.end);
        CHECK(held(ps, &c->from[x.from], x.begin) && held(ps, &c->from[x.from], x.end - 1),
              "rank %d does not hold [%zu, %zu)", x.from, x.begin, x.end);
        CHECK(x.from == x.to || !held(ps, &c->from[x.to], x.begin), "rank %d has it", x.to);
        for (size_t k = x.begin / STEP; k < x.end / STEP; k++)
            got[(size_t)x.to * cells + k]++;
    }
    for (size_t k = 0; k < cells; k += 7) {
        bool somebody = false;
        for (int r = 0; r < c->n; r++)
            somebody = somebody || held(ps, &c->from[r], k * STEP);
        missing += !somebody;
        for (int r = 0; r < c->n; r++)
            CHECK(got[(size_t)r * cells + k] == (somebody && contains(ps, c->to[r], k * STEP)),
                  "rank %d gets element %zu %d times", r, k * STEP, got[(size_t)r * cells + k]);
    }
    CHECK((missing > 0) == (p.missing > 0), "%zu and %zu elements are missing", missing, p.missing);
    for (int r = 0; r < c->n; r++) {
        int from = p.whole_from[r];
        bool needs = c->to[r].ranks && !c->from[r].n;
        CHECK(needs ? from < 0 || c->from[from].n : from == r, "rank %d: whole from %d", r, from);
    }
    missing = p.missing;
    td__free(got);
    td__reshard_fini(&p);
    return missing;
}

/* `before` ranks, of which `lost` (a bit mask) are gone; `news` join, as the last ranks. */
static change make_change(int before, unsigned lost, int news)
{
    td__holding old[MOST_RANKS];
    change c = {.n = 0};
    CHECK_OK(td__holdings_of(NULL, NULL, before, old));
    for (int r = 0; r < before; r++)
        if (!(lost >> r & 1))
            c.from[c.n++] = (td__holder){.n = 1, .of = {old[r]}};
    c.n += news;
    CHECK_OK(td__holdings_of(NULL, NULL, c.n, c.to));
    return c;
}

TEST(one_rank_may_be_lost_and_any_number_may_come)
{
    td_params *ps = make_params();
    for (int before = 2; before <= 6; before++)
        for (int lost = -1; lost < before; lost += before - 1)
            for (int news = 0; news <= 3; news += 3) {
                change c = make_change(before, lost < 0 ? 0 : 1u << lost, news);
                CHECK_EQ_INT(check_change(ps, &c), 0);
            }
    td_params_destroy(ps);
}

/* Rank 1's shards were with it and with rank 2, which mirrors it. */
TEST(a_shard_both_of_whose_holders_are_lost_is_missing)
{
    td_params *ps = make_params();
    change c = make_change(5, 1u << 1 | 1u << 2, 1);
    td__ownership m;
    size_t owned = 0;
    CHECK_OK(td__ownership_init(&m, ps, 5, BUCKET));
    for (int b = 0; b < m.params; b++)
        owned += td__shard_count(&m, b, 1);
    td__ownership_fini(&m);
    CHECK(owned > 0, "rank 1 has no shards");
    CHECK_EQ_INT(check_change(ps, &c), owned);
    td_params_destroy(ps);
}

/* The first change was cut short: some ranks hold what they had before and what they were to have,
 * some only one of both, some nothing; the next one begins from there. */
TEST(a_change_that_was_cut_short)
{
    td_params *ps = make_params();
    uint64_t n = 0;
    for (int round = 0; round < 30; round++) {
        int before = 2 + (int)draw(7, &n, 4), between = 2 + (int)draw(7, &n, 4);
        td__holding a[MOST_RANKS], b[MOST_RANKS];
        change c = {.n = 1 + (int)draw(7, &n, MOST_RANKS)};
        CHECK_OK(td__holdings_of(NULL, NULL, before, a));
        CHECK_OK(td__holdings_of(NULL, NULL, between, b));
        CHECK_OK(td__holdings_of(NULL, NULL, c.n, c.to));
        for (int r = 0; r < c.n; r++) {
            td__holder *h = &c.from[r];
            if (r < between && draw(7, &n, 3))
                h->of[h->n++] = b[r];
            if (r < before && draw(7, &n, 3))
                h->of[h->n++] = a[r];
            if (draw(7, &n, 5) == 0)
                c.to[r].ranks = 0; /* it goes */
        }
        (void)check_change(ps, &c);
    }
    td_params_destroy(ps);
}

/* Ranks that hold everything share the work of sending it to those that hold nothing. */
TEST(replicas_take_turns)
{
    td_params *ps = make_params();
    change c = {.n = 6};
    int sent[MOST_RANKS] = {0};
    td__reshard p;
    for (int r = 0; r < c.n; r++) {
        c.to[r] = (td__holding){1, 0, -1};
        if (r < 2)
            c.from[r] = (td__holder){.n = 1, .of = {c.to[r]}};
    }
    CHECK_EQ_INT(check_change(ps, &c), 0);
    CHECK_OK(td__reshard_plan(&p, ps, &(td__worlds){.nbytes = BUCKET}, c.n, c.from, c.to));
    for (size_t i = 0; i < p.n; i++)
        sent[p.at[i].from] += p.at[i].from != p.at[i].to;
    CHECK(sent[0] > 0 && sent[0] == sent[1], "%d and %d transfers", sent[0], sent[1]);
    td__reshard_fini(&p);
    td_params_destroy(ps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_owner),
        cmocka_unit_test(params_that_are_held_whole),
        cmocka_unit_test(ranges_of_a_holding),
        cmocka_unit_test(mirrors_are_on_other_hosts),
        cmocka_unit_test(one_rank_may_be_lost_and_any_number_may_come),
        cmocka_unit_test(a_shard_both_of_whose_holders_are_lost_is_missing),
        cmocka_unit_test(a_change_that_was_cut_short),
        cmocka_unit_test(replicas_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
