/* Messages at any time: every rank gets those of every other, whole and in order, while it computes
 * or waits; the death of one is known to all that wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "coll/post.h"
#include "support/check.h"
#include "support/ranks.h"

enum { MESSAGES = 60, MOST = 4 };

typedef struct inbox {
    td__post *post;
    int rank, ranks;
    uint64_t got[MOST], bad; /* with the post's lock */
} inbox;

/* None, a few bytes, more than a ring of shared memory holds at once. */
static size_t size_of(uint64_t number, int from)
{
    return number % 3 == 0 ? 0 : number % 20 == 1 ? (3u << 20) + number : 8 * number + (size_t)from;
}

static td_status hear(void *user, int from, const td__post_head *h, td__post_bytes *b)
{
    inbox *in = user;
    size_t n = size_of(h->number, from);
    const unsigned char *data = b ? td__post_bytes_data(b) : NULL;
    in->bad += h->number != in->got[from] || h->kind != 7 || h->flag != -from ||
               (b ? td__post_bytes_size(b) : 0) != n;
    for (size_t i = 0; data && i < n; i++)
        in->bad += data[i] != (unsigned char)(h->number + 3 * i);
    in->got[from]++;
    return TD_OK;
}

static bool has_all(void *user)
{
    inbox *in = user;
    for (int r = 0; r < in->ranks; r++)
        if (r != in->rank && in->got[r] < MESSAGES)
            return false;
    return true;
}

static void send_all(ranks_ctx *r, inbox *in)
{
    for (uint64_t k = 0; k < MESSAGES; k++) {
        size_t n = size_of(k, r->rank);
        td__post_bytes *b = n ? td__post_bytes_create(n) : NULL;
        for (size_t i = 0; i < n; i++)
            ((unsigned char *)td__post_bytes_data(b))[i] = (unsigned char)(k + 3 * i);
        for (int to = 0; to < in->ranks; to++)
            if (to != r->rank)
                RANK_OK(r, td__post_send(in->post, to,
                                         &(td__post_head){.kind = 7, .flag = -r->rank, .number = k},
                                         b));
        td__post_bytes_release(b);
    }
}

static void body(ranks_ctx *r)
{
    inbox in = {.rank = r->rank, .ranks = td_comm_size(r->comm)};
    RANK_OK(r, td__post_open(r->comm, hear, &in, &in.post));
    send_all(r, &in);
    if (r->rank % 2) { /* the others close at once, which waits too */
        td__post_lock(in.post);
        RANK_OK(r, td__post_wait(in.post, has_all, &in, "all messages"));
        td__post_unlock(in.post);
    }
    RANK_OK(r, td__post_close(in.post));
    RANK_CHECK(r, has_all(&in) && in.bad == 0, "rank %d: %d bad", r->rank, (int)in.bad);
}

TEST(messages_arrive_whole_and_in_order)
{
    for (int n = 2; n <= MOST; n++)
        for (int tcp = 0; tcp < 2; tcp++)
            ranks_run(n, tcp ? &(ranks_opts){.transport = "tcp"} : NULL, body, NULL);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

/* The last rank gives up; the others wait for what does not come. */
static void give_up(ranks_ctx *r)
{
    inbox in = {.rank = r->rank, .ranks = td_comm_size(r->comm)};
    RANK_OK(r, td__post_open(r->comm, hear, &in, &in.post));
    RANK_OK(r, td_barrier(r->comm, NULL)); /* all have opened it */
    if (r->rank < in.ranks - 1) {
        td__post_lock(in.post);
        td_status st = td__post_wait(in.post, never, NULL, "nothing");
        td__post_unlock(in.post);
        RANK_CHECK(r, st == TD_EPEER, "rank %d: %s", r->rank, td_status_name(st));
    }
    td__post_abort(in.post, "given up");
}

TEST(a_rank_that_gives_up_ends_all_waits)
{
    for (int n = 2; n <= MOST; n++)
        for (int tcp = 0; tcp < 2; tcp++)
            ranks_run(n, tcp ? &(ranks_opts){.transport = "tcp"} : NULL, give_up, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(a_rank_that_gives_up_ends_all_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
