/* Checkpoints in shards: ranges that cover the files are made of what ranks hold, and put together
 * again; lists that lie are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mirror/shards.h"
#include "support/check.h"
#include "tandem/tensor.h"

#define MODEL "model.safetensors"
#define OPTIMIZER "optimizer.safetensors"

enum { TOP_BYTES = 256 };
static char top[TOP_BYTES];

static void save(const char *path, const char *const *names, const int64_t *counts, int n)
{
    td_tensor tensors[4];
    td_named_tensor items[4];
    float data[64];

    for (int i = 0; i < 64; i++)
        data[i] = (float)i;
    for (int i = 0; i < n; i++) {
        td_shape shape = {.ndim = 1, .dim = {counts[i]}};
        CHECK_OK(td_tensor_wrap(&tensors[i], TD_F32, shape, data + i));
        items[i] = (td_named_tensor){names[i], &tensors[i]};
    }
    CHECK_OK(td_safetensors_save(path, items, n, NULL, 0));
}

/* The bytes of a shard, as its rank sends them. */
static td_status fetch(void *user, const char *object, const char *path, const char *sha256)
{
    const json_t *shards = user;
    json_t *shard, *row;
    size_t i, k;
    FILE *f = fopen(path, "wb");

    (void)sha256;
    CHECK(f, "%s", path);
    json_array_foreach(shards, i, shard)
    {
        if (strcmp(json_string_value(json_object_get(shard, "object")), object) != 0)
            continue;
        json_array_foreach(json_object_get(shard, "ranges"), k, row)
        {
            char from[TOP_BYTES + 64];
            size_t nbytes, n = (size_t)json_integer_value(json_array_get(row, 2));
            snprintf(from, sizeof from, "%s/%s", top, json_string_value(json_array_get(row, 0)));
            char *data = check_read_file(from, &nbytes);
            CHECK_EQ_INT(fwrite(data + json_integer_value(json_array_get(row, 1)), 1, n, f), n);
            free(data);
        }
    }
    CHECK_EQ_INT(fclose(f), 0);
    return TD_OK;
}

static json_t *state_of(const char *const *files, int n)
{
    json_t *all = json_object();
    for (int i = 0; i < n; i++) {
        char path[TOP_BYTES + 64];
        size_t nbytes;
        snprintf(path, sizeof path, "%s/%s", top, files[i]);
        free(check_read_file(path, &nbytes));
        json_object_set_new(all, files[i], json_pack("{s:I}", "nbytes", (json_int_t)nbytes));
    }
    return json_pack("{s:o}", "files", all);
}

static const char *const FILES[] = {MODEL, OPTIMIZER};

TEST(files_are_cut_and_put_together)
{
    static const td__shard_row ROWS[] = {{1, MODEL, "w", 3, 7},
                                         {2, MODEL, "w", 10, 2},
                                         {2, MODEL, "b", 0, 5},
                                         {1, OPTIMIZER, "exp/w", 3, 7},
                                         {2, OPTIMIZER, "exp/w", 10, 2},
                                         {2, OPTIMIZER, "exp/b", 0, 5},
                                         {1, OPTIMIZER, "exp_sq/w", 0, 12}};
    td__shards_event e = {.step = 7, .ranks = 3, .row = ROWS, .n = 7};
    td__shard_offer *o;
    json_t *shards, *shard, *state;
    uint64_t sum = 0, all = 0;
    size_t i;

    snprintf(top, sizeof top, "%s", check_tmpdir());
    save(check_path(MODEL), (const char *const[]){"w", "b", "mean"}, (int64_t[]){12, 5, 3}, 3);
    save(check_path(OPTIMIZER), (const char *const[]){"exp/w", "exp/b", "exp_sq/w"},
         (int64_t[]){12, 5, 12}, 3);
    CHECK_OK(td__shard_offer_create(&e, 0xbadcafe, &o));
    CHECK_OK(td__shard_places(o, top, &shards));
    td__shard_offer_destroy(o);
    CHECK_EQ_INT(json_array_size(shards), 3);
    CHECK(strcmp(json_string_value(json_object_get(json_array_get(shards, 1), "object")),
                 "shard-1-of-3-0badcafe") == 0,
          "another name");
    CHECK_EQ_INT(td__shard_nbytes(json_array_get(shards, 1)), 4 * (7 + 7 + 12));
    CHECK_EQ_INT(td__shard_nbytes(json_array_get(shards, 2)), 4 * (2 + 5 + 2 + 5));
    state = state_of(FILES, 2);
    json_array_foreach(shards, i, shard)
    {
        json_object_set_new(shard, "sha256",
                            json_string("0000000000000000000000000000000000000000"
                                        "000000000000000000000000"));
        sum += td__shard_nbytes(shard);
    }
    char folder[TOP_BYTES + 16];
    snprintf(folder, sizeof folder, "%s/again", top);
    CHECK_EQ_INT(mkdir(folder, 0777), 0);
    CHECK_OK(td__shards_assemble(shards, state, folder, fetch, shards));
    for (int f = 0; f < 2; f++) {
        char path[TOP_BYTES + 64];
        size_t n, have;
        snprintf(path, sizeof path, "%s/%s", folder, FILES[f]);
        char *want = check_read_file(check_path(FILES[f]), &n), *got = check_read_file(path, &have);
        CHECK(n == have && memcmp(want, got, n) == 0, "%s is another", FILES[f]);
        all += n;
        free(want);
        free(got);
    }
    CHECK_EQ_INT(sum, all);
    json_decref(shards);
    json_decref(state);
    check_tmpdir_remove();
}

TEST(rows_that_do_not_fit_are_refused)
{
    static const td__shard_row WRONG[][2] = {
        {{1, MODEL, "w", 3, 10}, {1, MODEL, "w", 0, 1}}, /* beyond the tensor */
        {{1, MODEL, "v", 0, 1}, {1, MODEL, "w", 0, 1}},  /* no such tensor */
        {{1, MODEL, "w", 0, 4}, {2, MODEL, "w", 3, 2}},  /* twice */
    };

    snprintf(top, sizeof top, "%s", check_tmpdir());
    save(check_path(MODEL), (const char *const[]){"w"}, (int64_t[]){12}, 1);
    save(check_path(OPTIMIZER), (const char *const[]){"exp/w"}, (int64_t[]){12}, 1);
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        td__shards_event e = {.ranks = 3, .row = WRONG[i], .n = 2};
        td__shard_offer *o;
        json_t *shards;
        CHECK_OK(td__shard_offer_create(&e, 1, &o));
        CHECK_STATUS(td__shard_places(o, top, &shards), TD_EPROTO);
        CHECK(!shards, "case %zu", i);
        td__shard_offer_destroy(o);
    }
    check_tmpdir_remove();
}

static td_status fetch_zeros(void *user, const char *object, const char *path, const char *sha256)
{
    static const char zeros[64];
    (void)user;
    (void)object;
    (void)sha256;
    check_write_file(path, zeros, sizeof zeros);
    return TD_OK;
}

#define HASH "\"sha256\": \"0000000000000000000000000000000000000000000000000000000000000000\""
#define SHARD(object, ranges) "[{\"object\": \"" object "\", " HASH ", \"ranges\": " ranges "}]"

TEST(lists_that_lie_are_refused)
{
    static const struct {
        const char *list;
        td_status want;
    } CASES[] = {
        {SHARD("a", "[[\"f\", 0, 16], [\"f\", 48, 16]]"), TD_OK},
        {SHARD("a", "[[\"f\", 0, 65]]"), TD_EPROTO},
        {SHARD("a", "[[\"f\", 64, 1]]"), TD_EPROTO},
        {SHARD("a", "[[\"f\", 9223372036854775807, 1]]"), TD_EPROTO},
        {SHARD("a", "[[\"f\", 1, 9223372036854775807]]"), TD_EPROTO},
        {SHARD("a", "[[\"f\", -1, 1]]"), TD_EPROTO},
        {SHARD("a", "[[\"f\", 1, -1]]"), TD_EPROTO},
        {SHARD("a", "[[\"g\", 0, 1]]"), TD_EPROTO},
        {SHARD("a", "[[\"../g\", 0, 1]]"), TD_EPROTO},
        {SHARD("a", "[[0, 0, 1]]"), TD_EPROTO},
        {SHARD("a", "[7]"), TD_EPROTO},
        {SHARD("a", "[[\"f\", 0, 64], [\"f\", 0, 1]]"), TD_EIO}, /* more than the object has */
        {SHARD("../a", "[]"), TD_EPROTO},
        {SHARD("", "[]"), TD_EPROTO},
        {"[{\"object\": \"a\", \"ranges\": []}]", TD_EPROTO},
        {"[{\"object\": \"a\", \"sha256\": \"12\"}]", TD_EPROTO},
        {"[0]", TD_EPROTO},
    };
    json_t *state =
        json_pack("{s:{s:{s:i}, s:{s:i}}}", "files", "f", "nbytes", 64, "../g", "nbytes", 64);

    snprintf(top, sizeof top, "%s", check_tmpdir());
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        json_t *shards = json_loads(CASES[i].list, 0, NULL);
        CHECK(shards, "case %zu", i);
        td_status st = td__shards_assemble(shards, state, top, fetch_zeros, NULL);
        CHECK(st == CASES[i].want, "case %zu: %s", i, td_status_name(st));
        json_decref(shards);
    }
    json_decref(state);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_cut_and_put_together),
        cmocka_unit_test(rows_that_do_not_fit_are_refused),
        cmocka_unit_test(lists_that_lie_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
