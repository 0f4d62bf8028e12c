/* Specs of jobs and the service's configuration: from text to members, back, and what is wrong. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "service/config.h"
#include "service/spec.h"
#include "support/check.h"

static td__job_spec *parse(const char *text)
{
    td__job_spec *s;

    CHECK_OK(td__spec_parse(text, strlen(text), "request", &s));
    return s;
}

TEST(defaults)
{
    td__job_spec *s;

    CHECK_OK(td__spec_create(&s));
    assert_string_equal(s->name, "");
    assert_string_equal(s->framework, "none");
    assert_int_equal(s->members, 1);
    assert_int_equal(s->slots, 1);
    assert_int_equal(s->grace_s, 30);
    assert_true(s->pack);
    assert_int_equal(s->parameters.n, 0);
    td__text text = {0};
    td__spec_json(s, &text);
    assert_string_equal(text.data, "{}");
    td__text_fini(&text);
    td__spec_destroy(s);
}

/* The book's request, whose fields lie in `metadata`, in either spelling. */
TEST(the_books_request_is_a_spec)
{
    static const char *const TEXTS[] = {
        "{\"metadata\": {\"algorithm\": \"a\", \"dataset_id\": \"1\", \"name\": \"n\", "
        "\"train_data_version_hash\": \"hashBA==\", \"parameters\": {\"LR\": \"4\"}}}",
        "{\"metadata\": {\"algorithm\": \"a\", \"datasetId\": \"1\", \"name\": \"n\", "
        "\"trainDataVersionHash\": \"hashBA==\", \"parameters\": {\"LR\": 4}}, \"priority\": 3}",
    };

    for (int i = 0; i < TD_LEN(TEXTS); i++) {
        td__job_spec *s = parse(TEXTS[i]);
        assert_string_equal(s->dataset_id, "1");
        assert_string_equal(s->train_data_version_hash, "hashBA==");
        assert_string_equal(td__pairs_get(&s->parameters, "LR"), "4");
        CHECK_EQ_INT(s->priority, 3 * i);
        td__spec_destroy(s);
    }
}

/* YAML, JSON and the spelling of protobuf's JSON are one spec, and it survives the store. */
TEST(round_trip)
{
    static const char *const TEXTS[] = {
        "name: a\nalgorithm: intent-classification\noutput_model_name: m\npriority: -7\n"
        "parameters: {LR: 4, EPOCHS: '15', API_TOKEN: x}\nresources: {members: 3, gpus: 2}\n"
        "retries: 2\ncommand: [echo, \"a b\"]\nenv: {COLOUR: red}\npreemptible: true\n"
        "job: \"model: []\\n# é\"\nlabels: {team: nlp}\n",
        "{\"name\": \"a\", \"algorithm\": \"intent-classification\", \"outputModelName\": \"m\", "
        "\"priority\": -7, \"parameters\": {\"LR\": 4, \"EPOCHS\": \"15\", \"API_TOKEN\": \"x\"}, "
        "\"resources\": {\"members\": 3, \"gpus\": 2}, \"retries\": {\"max\": 2}, \"command\": "
        "[\"echo\", \"a b\"], \"env\": {\"COLOUR\": \"red\"}, \"preemptible\": true, \"job\": "
        "\"model: []\\n# \\u00e9\", \"labels\": {\"team\": \"nlp\"}}",
    };
    static const char WANT[] =
        "{\"name\":\"a\",\"algorithm\":\"intent-classification\",\"output_model_name\":\"m\","
        "\"command\":[\"echo\",\"a b\"],\"priority\":-7,\"resources\":{\"members\":3,\"gpus\":2},"
        "\"retries\":{\"max\":2},\"preemptible\":true,\"parameters\":{\"LR\":\"4\",\"EPOCHS\":"
        "\"15\",\"API_TOKEN\":\"x\"},\"env\":{\"COLOUR\":\"red\"},\"labels\":{\"team\":\"nlp\"},"
        "\"job\":\"model: []\\u000a# é\"}";
    td__job_spec *none;

    CHECK_OK(td__spec_create(&none));
    for (int i = 0; i < TD_LEN(TEXTS); i++) {
        td__job_spec *s = parse(TEXTS[i]), *back;
        td__text text = {0}, again = {0}, public = {0};
        td__spec_json(s, &text);
        assert_string_equal(text.data, WANT);
        CHECK_OK(td__spec_load(text.data, none, &back));
        td__spec_json(back, &again);
        assert_string_equal(again.data, WANT);
        assert_int_equal(back->grace_s, 30);
        assert_int_equal(td__job_processes(back), 2);
        td__spec_json_public(s, &public);
        assert_null(strstr(public.data, "red"));
        assert_non_null(strstr(public.data, "\"API_TOKEN\":\"***\""));
        assert_non_null(strstr(public.data, "\"LR\":\"4\""));
        td__text_fini(&text);
        td__text_fini(&again);
        td__text_fini(&public);
        td__spec_destroy(s);
        td__spec_destroy(back);
    }
    td__spec_destroy(none);
}

TEST(wrong_specs)
{
    static const struct {
        const char *text, *want;
    } CASES[] = {
        {"{\"pririty\": 1}", "request: pririty: unknown key; did you mean priority?"},
        {"{\"priority\": 5000}",
         "request: priority: expected a whole number from -1000 to 1000, found 5000"},
        {"priority: [1]\n", "request:1:11: priority: expected"},
        {"{\"parameters\": [1]}", "request: parameters: expected a map of texts, found a list"},
        {"{\"parameters\": {\"A\": {}}}", "request: parameters.A: expected a text, found a map"},
        {"{\"job\": {}}", "request: job: expected the text of a job file, found a map"},
        {"{\"name\"", "request:1:"},
        {"[]", "expected a map of keys, found a list"},
    };
    td__job_spec *s;

    for (int i = 0; i < TD_LEN(CASES); i++) {
        assert_int_equal(td__spec_parse(CASES[i].text, strlen(CASES[i].text), "request", &s),
                         TD_EINVAL);
        if (!strstr(td_last_error(), CASES[i].want))
            fail_msg("%s: found '%s', expected '%s'", CASES[i].text, td_last_error(),
                     CASES[i].want);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

TEST(configuration)
{
    static const char *const SETS[] = {"schedule.starve_s=7", "grpc.listen=[a:1, b:2]"};
    td__service_config *c;
    char path[] = "/tmp/td-config-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    CHECK_OK(td__config_load(NULL, NULL, 0, &c));
    assert_string_equal(c->grpc_listen[0], "127.0.0.1:6003");
    assert_string_equal(c->tracker, "process");
    assert_true(c->allow_code); /* no tokens: whoever reaches the socket is trusted */
    td__config_destroy(c);

    write_file(path,
               "data: {dir: /d}\nsecurity:\n  tokens:\n    - {name: ann, scope: admin, sha256: "
               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n"
               "quotas: [{user: '*', slots: 4}]\n");
    CHECK_OK(td__config_load(path, SETS, 2, &c));
    assert_string_equal(c->data_dir, "/d");
    assert_int_equal(c->n_grpc_listen, 2);
    assert_string_equal(c->grpc_listen[1], "b:2");
    assert_int_equal(c->starve_s, 7);
    assert_int_equal(c->n_tokens, 1);
    assert_string_equal(c->tokens[0].scope, "admin");
    assert_false(c->allow_code);
    assert_int_equal(c->quotas[0].slots, 4);
    assert_int_equal(c->quotas[0].gpus, -1);
    td__config_destroy(c);

    write_file(path, "security:\n  tokens: [{name: a, sha256: plain}]\n");
    assert_int_equal(td__config_load(path, NULL, 0, &c), TD_EINVAL);
    assert_non_null(strstr(td_last_error(), "expected 64 hexadecimal digits"));
    write_file(path, "grcp: {listen: a}\n");
    assert_int_equal(td__config_load(path, NULL, 0, &c), TD_EINVAL);
    assert_non_null(strstr(td_last_error(), "did you mean grpc"));

    write_file(path, "# the book's\nts.server.port=51001\nts.backend=kubectl\r\n"
                     "ts.backend.kubectlNamespace = orca3\ndm.server.host=localhost\n"
                     "dm.server.port=6000\nps.server.port=6001\n");
    CHECK_OK(td__config_load_book(path, NULL, 0, &c));
    assert_string_equal(c->grpc_listen[0], "0.0.0.0:51001");
    assert_string_equal(c->tracker, "kubernetes");
    assert_string_equal(c->kube_namespace, "orca3");
    assert_string_equal(c->data_service, "localhost:6000");
    assert_int_equal(c->slots, 0); /* the cluster's, whatever this host has */
    td__config_destroy(c);
    write_file(path, "ts.backend=vm\n");
    assert_int_equal(td__config_load_book(path, NULL, 0, &c), TD_EINVAL);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),      cmocka_unit_test(the_books_request_is_a_spec),
        cmocka_unit_test(round_trip),    cmocka_unit_test(wrong_specs),
        cmocka_unit_test(configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
