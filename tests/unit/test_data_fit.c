/* What was measured on the training part, saved and taken up again (data/fit.h): new samples are
 * read as those of training were, without the training files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "data/data.h"
#include "support/check.h"
#include "tandem/tensor.h"

/* A job's data, and the text of what they measured. */
static td__text fit_of(const td__data_opts *o)
{
    td__text text = {0};
    td__data *d;

    CHECK_OK(td__data_open(o, &d));
    CHECK_OK(td__data_fit(d, &text));
    td__data_close(d);
    return text;
}

static td__fit *parsed(const td__text *text)
{
    td__fit *f;
    CHECK_OK(td__fit_parse(text->data, text->used, "fit", &f));
    return f;
}

/* All bytes of all fields but the last, which is the label. */
static td__text samples(td__data *d, td__part part)
{
    td__dataset *p = td__data_part(d, part);
    td__text all = {0};
    char rows[2][4096];

    CHECK_EQ_INT(p->n_fields, 2);
    for (int64_t i = 0; i < p->count; i++) {
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){rows[0], rows[1]}));
        td__text_append(&all, rows[0], td__field_nbytes(&p->fields[0]));
    }
    return all;
}

/* New samples read with the train file there, and by the fit alone after `train` is gone. */
static void check_alone(td__data_opts *o, const char *train, const char *input)
{
    td__text text = fit_of(o), again = {0};
    td__fit *f = parsed(&text);
    td__data *with, *without;

    o->input = check_path(input);
    CHECK_OK(td__data_open(o, &with));
    CHECK_EQ_INT(unlink(check_path(train)), 0);
    o->fit = f;
    CHECK_OK(td__data_open(o, &without));
    td__text a = samples(with, TD_PART_TEST), b = samples(without, TD_PART_TEST);
    CHECK(a.used && a.used == b.used && memcmp(a.data, b.data, a.used) == 0,
          "%s: other inputs of the model by the fit alone", o->source);
    CHECK(!td__data_part(without, TD_PART_TRAIN), "the train part was opened");
    CHECK_OK(td__data_fit(without, &again));
    CHECK_EQ_INT(again.used, 0);
    td__data_close(with);
    td__data_close(without);
    td__text_fini(&a);
    td__text_fini(&b);
    td__text_fini(&text);
    td__fit_destroy(f);
}

static void put(const char *name, const char *text)
{
    check_write_file(check_path(name), text, strlen(text));
}

TEST(tables)
{
    static const td__map_opts NORMALIZE = {.name = "normalize"};
    td__data_opts o = {.source = "csv",
                       .source_opts = {.dir = check_tmpdir(), .train = "a.csv"},
                       .maps = &NORMALIZE,
                       .n_maps = 1};

    put("a.csv", "u,city,y\n1,Oslo,a\n2.5,Bonn,b\n-7,R\xf6m,a\n0.1,Oslo,c\n");
    put("new.csv", "city,u\nR\xf6m,3\nBonn,1e-3\n");
    check_alone(&o, "a.csv", "new.csv");
    check_tmpdir_remove();
}

TEST(texts)
{
    static const td__map_opts WORDS = {.name = "tokenize", .text = "word", .size = 5, .size2 = 6};
    static const td__map_opts CHARS = {.name = "tokenize", .text = "char", .size = 7};

    for (int i = 0; i < 2; i++) {
        td__data_opts o = {.source = "jsonl",
                           .source_opts = {.dir = check_tmpdir(), .train = "a.jsonl"},
                           .maps = i ? &CHARS : &WORDS,
                           .n_maps = 1};
        put("a.jsonl", "{\"t\": \"the cat sat\", \"y\": 0}\n{\"t\": \"the dog\", \"y\": 1}\n"
                       "{\"t\": \"a cat and a dog\", \"y\": 0}\n");
        put("new.jsonl", "{\"t\": \"the zebra and the dog\"}\n{\"t\": \"cat!\"}\n");
        check_alone(&o, "a.jsonl", "new.jsonl");
        check_tmpdir_remove();
    }
}

TEST(characters)
{
    td__data_opts o = {.source = "text",
                       .source_opts = {.dir = check_tmpdir(), .train = "a.txt", .context = 4}};

    put("a.txt", "hello w\xc3\xb6rld, and all that");
    put("new.txt", "dr\xc3\xb6hn all that");
    check_alone(&o, "a.txt", "new.txt");
    check_tmpdir_remove();
}

static void write_npz(const char *name, int64_t n, bool labels)
{
    float x[8][3];
    int64_t y[8];
    td_tensor tx, ty;

    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 3; k++)
            x[i][k] = (float)(i * 3 + k * k);
        y[i] = i % 3;
    }
    CHECK_OK(td_tensor_wrap(&tx, TD_F32, TD_SHAPE(n, 3), x));
    CHECK_OK(td_tensor_wrap(&ty, TD_I64, TD_SHAPE(n), y));
    td_named_tensor items[] = {{"x", &tx}, {"y", &ty}};
    CHECK_OK(td_npz_save(check_path(name), items, labels ? 2 : 1, false));
}

TEST(arrays)
{
    static const td__map_opts NORMALIZE = {.name = "normalize"};
    td__data_opts o = {.source = "npy",
                       .source_opts = {.dir = check_tmpdir(), .train = "a.npz"},
                       .maps = &NORMALIZE,
                       .n_maps = 1};

    write_npz("a.npz", 8, true);
    write_npz("new.npz", 5, false);
    check_alone(&o, "a.npz", "new.npz");
    check_tmpdir_remove();
}

/* Changed samples are noticed; changed files that give the same samples are not. */
TEST(changes)
{
    static const struct {
        const char *text, *what;
    } CASES[] = {
        {"u,city,y\n1,Oslo,a\n2,Bonn,b\n3,Rome,a\n", ""},
        {"city,y,u,unread\nOslo,a,1.0,9\nBonn,b,2,9\nRome,a,3,9\n", ""},
        {"u,city,y\n1,Oslo,a\n2,Bonn,b\n3,Rome,b\n", "samples of the train part are others"},
        {"u,city,y\n1,Oslo,a\n2,Bonn,b\n4,Rome,a\n", "samples of the train part are others"},
        {"u,city,y\n1,Oslo,a\n2,Paris,b\n3,Rome,a\n", "samples of the train part are others"},
        {"u,city,y\n1,Oslo,a\n2,Bonn,b\n", "the train part has 2 samples, not 3"},
    };
    const char *columns[] = {"u", "city"};
    td__data_opts o = {.source = "csv",
                       .source_opts = {.dir = check_tmpdir(),
                                       .train = "a.csv",
                                       .label = "y",
                                       .columns = columns,
                                       .n_columns = 2}};

    put("a.csv", CASES[0].text);
    td__text text = fit_of(&o);
    td__fit *f = parsed(&text);
    o.fit = f;
    for (int i = 0; i < TD_LEN(CASES); i++) {
        char what[128];
        bool changed;
        td__data *d;
        put("a.csv", CASES[i].text);
        CHECK_OK(td__data_open(&o, &d));
        CHECK_OK(td__data_changed(d, f, &changed, what, sizeof what));
        CHECK(strstr(what, CASES[i].what) && changed == (CASES[i].what[0] != 0), "case %d: '%s'", i,
              what);
        td__data_close(d);
    }
    put("a.csv", "u,city,y\n1,Oslo,zebra\n");
    td__data *d;
    CHECK_STATUS(td__data_open(&o, &d), TD_EPROTO);
    CHECK(strstr(td_last_error(), "'zebra', expected a class that the model was trained on"), "%s",
          td_last_error());
    td__text_fini(&text);
    td__fit_destroy(f);
    check_tmpdir_remove();
}

/* A text that is damaged or made up gives an error. */
TEST(hostile)
{
    static const td__map_opts MAPS[] = {{.name = "normalize"}};
    td__data_opts o = {.source = "csv",
                       .source_opts = {.dir = check_tmpdir(), .train = "a.csv"},
                       .maps = MAPS,
                       .n_maps = 1};
    int refused = 0;

    put("a.csv", "u,city,y\n1,Oslo,a\n2,Bonn,b\n3,Rome,a\n");
    put("new.csv", "u,city\n1,Oslo\n");
    td__text text = fit_of(&o);
    o.input = check_path("new.csv");
    for (size_t i = 0; i < text.used; i++) {
        char was = text.data[i];
        td__fit *f = NULL;
        td__data *d = NULL;
        text.data[i] = was == '0' ? '9' : was == '"' ? ' ' : '0';
        td_status st = td__fit_parse(text.data, text.used, "fit", &f);
        o.fit = f;
        if (!st)
            st = td__data_open(&o, &d);
        CHECK(st == TD_OK || st == TD_EPROTO || st == TD_EINVAL, "byte %zu: status %d", i, (int)st);
        refused += st != TD_OK;
        td__data_close(d);
        td__fit_destroy(f);
        text.data[i] = was;
    }
    CHECK(refused > (int)text.used / 4, "%d of %zu", refused, text.used);
    td__text_fini(&text);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables), cmocka_unit_test(texts),   cmocka_unit_test(characters),
        cmocka_unit_test(arrays), cmocka_unit_test(changes), cmocka_unit_test(hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
