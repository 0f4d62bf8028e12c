/* Ranks that have parts of a job's model each, through tandem/train.h: what needs the whole model
 * is called by all, after training and on the trained run, and gives what one rank gives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/train.h"

static const char TEXT[] = "name: spirals\n"
                           "model: [{linear: 24, act: relu}, {dropout: 0.1}, linear]\n"
                           "data: {source: spirals, count: 300, split: {valid: 0.1, test: 0.1}}\n"
                           "train: {batch: 32, epochs: 2, optimizer: {lr: 0.01}}\n";

enum { PATH = 256 };

typedef struct parted {
    const char *key;    /* what divides the model; NULL: nothing does */
    const char *pieces; /* a key of one rank, too; NULL: none */
    char run[PATH], rows[PATH], weights[PATH];
    td_run_result r;
    td_metrics e;
} parted;

static td_status train_and_use(parted *p, td_comm *comm, td_run_result *r, td_metrics *e)
{
    td_job *j = NULL;
    td_trainer *t = NULL;
    td_dataset *d = NULL;

    td_status st = td_job_parse(TEXT, "memory.yaml", &j);
    if (!st && p->pieces)
        st = td_job_set(j, p->pieces);
    if (!st && p->key)
        st = td_job_set(j, p->key);
    if (!st)
        st = td_trainer_from_job(j, &(td_job_opts){.comm = comm, .run_dir = p->run}, &t);
    if (!st)
        st = td_trainer_fit(t, r);
    if (!st)
        st = td_trainer_part(t, "test", &d);
    if (!st)
        st = td_trainer_evaluate(t, d, e);
    if (!st)
        st = td_trainer_predict_file(t, d, p->rows);
    if (!st)
        st = td_trainer_save(t, p->weights);
    td_dataset_destroy(d);
    td_trainer_destroy(t);
    td_job_destroy(j);
    return st;
}

/* The same predictions and metrics of the run that they have left, anew. */
static td_status use_trained(const parted *p, td_comm *comm, td_metrics *e)
{
    td_trainer *t;
    td_dataset *d = NULL;
    char rows[PATH + 8];

    snprintf(rows, sizeof rows, "%s.csv", p->rows);
    td_status st = td_trainer_from_run(p->run, NULL, &(td_job_opts){.comm = comm}, &t);
    if (st)
        return st;
    st = td_trainer_part(t, "test", &d);
    if (!st)
        st = td_trainer_evaluate(t, d, e);
    if (!st)
        st = td_trainer_predict_file(t, d, rows);
    td_dataset_destroy(d);
    td_trainer_destroy(t);
    return st;
}

static void one_with_a_part(ranks_ctx *r)
{
    parted *p = r->arg;
    td_run_result got;
    td_metrics e, again;

    RANK_OK(r, train_and_use(p, r->comm, &got, &e));
    RANK_OK(r, td_barrier(r->comm, NULL)); /* rank 0 has written the last checkpoint */
    RANK_OK(r, use_trained(p, r->comm, &again));
    RANK_CHECK(r, again.value[0] == e.value[0], "%a and %a", again.value[0], e.value[0]);
    if (r->rank == 0) {
        p->r = got;
        p->e = e;
    }
}

static void same_file(const char *a, const char *b)
{
    td__file_map x, y;
    CHECK_OK(td__file_map_open(&x, a));
    CHECK_OK(td__file_map_open(&y, b));
    CHECK(x.nbytes == y.nbytes && !memcmp(x.data, y.data, x.nbytes), "%s and %s differ", a, b);
    td__file_map_close(&x);
    td__file_map_close(&y);
}

static void in_tmpdir(parted *p, int i)
{
    snprintf(p->run, PATH, "%s/run-%d", check_path(""), i);
    snprintf(p->rows, PATH, "%s/rows-%d.csv", check_path(""), i);
    snprintf(p->weights, PATH, "%s/weights-%d.safetensors", check_path(""), i);
}

/* All ranks call what needs the whole model; the results are those of one rank. */
TEST(ranks_with_parts_of_the_weights_evaluate_predict_and_save)
{
    static const struct {
        const char *key, *pieces;
    } CASES[] = {{"parallel.zero=3", NULL},
                 {"parallel.pipeline=2", NULL},
                 {"parallel.tensor=2", "parallel.tensor_pieces=2"}};
    char again[PATH + 8];

    check_tmpdir();
    for (int i = 0; i < TD_LEN(CASES); i++) {
        parted one = {.pieces = CASES[i].pieces};
        parted p = {.key = CASES[i].key, .pieces = CASES[i].pieces};
        in_tmpdir(&one, 2 * i);
        in_tmpdir(&p, 2 * i + 1);
        CHECK_OK(train_and_use(&one, NULL, &one.r, &one.e));
        ranks_run(2, NULL, one_with_a_part, &p);
        CHECK(!strcmp(p.r.digest, one.r.digest), "%s: %s and %s", p.key, p.r.digest, one.r.digest);
        CHECK(p.e.value[0] == one.e.value[0], "%s: %a and %a", p.key, p.e.value[0], one.e.value[0]);
        same_file(p.rows, one.rows);
        snprintf(again, sizeof again, "%s.csv", p.rows);
        same_file(again, one.rows);
        same_file(p.weights, one.weights);
    }
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_parts_of_the_weights_evaluate_predict_and_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
