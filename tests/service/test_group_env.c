/* The environment of a group's processes: ranks, what all share, and what a job may not set. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "service/group_env.h"
#include "service/spec.h"
#include "support/check.h"

/* The last value of a variable; NULL: not set. */
static const char *value(const td__texts *t, const char *name)
{
    const char *text, *found = NULL;
    size_t n = strlen(name);

    for (size_t at = 0; (text = td__texts_next(t->data, t->used, &at));)
        if (!strncmp(text, name, n) && text[n] == '=')
            found = text + n + 1;
    return found;
}

TEST(ranks)
{
    static const char SPEC[] = "{\"resources\": {\"members\": 2, \"processes\": 2}}";
    static const char *const HOSTS[] = {"a", "b"};
    td__job_spec *s;

    CHECK_OK(td__spec_parse(SPEC, sizeof SPEC - 1, "test", &s));
    td__group g = {.spec = s};
    td__texts apart = {0}, here = {0};
    td__process_env(&g, &(td__group_place){.hosts = HOSTS, .master = "svc"}, 1, 1, &apart);
    assert_false(apart.failed);
    assert_string_equal(value(&apart, "RANK"), "3");
    assert_string_equal(value(&apart, "WORLD_SIZE"), "4");
    assert_string_equal(value(&apart, "LOCAL_RANK"), "1");
    assert_string_equal(value(&apart, "LOCAL_WORLD_SIZE"), "2");
    assert_string_equal(value(&apart, "MASTER_ADDR"), "svc");
    assert_string_equal(value(&apart, "MASTER_PORT"), "12356");
    assert_string_equal(value(&apart, "HOROVOD_CROSS_RANK"), "1");
    assert_string_equal(value(&apart, "OMPI_COMM_WORLD_RANK"), "3");
    assert_string_equal(value(&apart, "TF_CONFIG"),
                        "{\"cluster\": {\"worker\": [\"a:12400\", \"a:12401\", \"b:12400\", "
                        "\"b:12401\"]}, \"task\": {\"type\": \"worker\", \"index\": 3}}");
    /* Two groups on the same hosts do not meet at each other's ports, nor two of its members. */
    td__texts_fini(&apart);
    td__process_env(&g, &(td__group_place){.hosts = HOSTS, .master_port = 20007}, 1, 1, &apart);
    assert_string_equal(value(&apart, "TF_CONFIG"),
                        "{\"cluster\": {\"worker\": [\"a:20008\", \"a:20009\", \"b:20010\", "
                        "\"b:20011\"]}, \"task\": {\"type\": \"worker\", \"index\": 3}}");
    td__process_env(&g, &(td__group_place){.master_port = 7}, 1, 0, &here);
    assert_string_equal(value(&here, "LOCAL_RANK"), "2");
    assert_string_equal(value(&here, "MASTER_ADDR"), "127.0.0.1");
    assert_string_equal(value(&here, "MASTER_PORT"), "7");
    td__texts_fini(&apart);
    td__texts_fini(&here);
    td__spec_destroy(s);
}

/* Ranks of tandem in members of a tracker: theirs, and nothing that says that MPI started them. */
TEST(ranks_of_tandem)
{
    static const char SPEC[] = "{\"resources\": {\"members\": 2}, \"framework\": \"tandem\"}";
    static const char *const HOSTS[] = {"a", "b"};
    td__job_spec *s;
    td__texts t = {0};

    CHECK_OK(td__spec_parse(SPEC, sizeof SPEC - 1, "test", &s));
    td__group g = {.spec = s};
    td__process_env(&g, &(td__group_place){.hosts = HOSTS, .master = "svc"}, 1, 0, &t);
    assert_false(t.failed);
    assert_string_equal(value(&t, "TANDEM_RANK"), "1");
    assert_string_equal(value(&t, "TANDEM_SIZE"), "2");
    assert_string_equal(value(&t, "TANDEM_LOCAL_SIZE"), "1");
    assert_string_equal(value(&t, "TANDEM_STORE"), "svc:12356");
    assert_string_equal(value(&t, "RANK"), "1");
    assert_null(value(&t, "OMPI_COMM_WORLD_RANK"));
    assert_null(value(&t, "HOROVOD_RANK"));
    td__texts_fini(&t);
    td__spec_destroy(s);
}

TEST(shared)
{
    static const char SPEC[] = "{\"algorithm\": \"alg\", \"dataset_id\": \"1\", \"name\": \"n\", "
                               "\"output_model_name\": \"m\", \"parameters\": {\"LR\": \"4\", "
                               "\"JOB_ID\": \"9\", \"LD_PRELOAD\": \"x.so\"}}";
    td__service_config *c;
    td__job_record r = {.id = 12, .attempt = 2, .data_bucket = (char[]){"b"}};
    td__texts t = {0};

    CHECK_OK(td__config_load(NULL, NULL, 0, &c));
    CHECK_OK(td__spec_parse(SPEC, sizeof SPEC - 1, "test", &r.spec));
    td__job_env(c, &r, "h:7", "/d/jobs/12", NULL, false, &t);
    assert_string_equal(value(&t, "JOB_ID"), "12");
    assert_string_equal(value(&t, "LR"), "4");
    assert_string_equal(value(&t, "ALGORITHM_NAME"), "alg");
    assert_string_equal(value(&t, "MODEL_NAME"), "m");
    assert_string_equal(value(&t, "METADATA_STORE_SERVER"), "h:7");
    assert_string_equal(value(&t, "MODEL_BUCKET"), "mini-automl-ms");
    assert_string_equal(value(&t, "TRAINING_DATA_BUCKET"), "b");
    assert_string_equal(value(&t, "TANDEM_CHECKPOINT_URL"), "file:///d/jobs/12/checkpoints");
    assert_null(value(&t, "LD_PRELOAD"));
    td__texts own = {0}; /* tandem's own runs need none of the client's variables */
    td__job_env(c, &r, "h:7", "/d/jobs/12", NULL, true, &own);
    assert_null(value(&own, "LR"));
    assert_string_equal(value(&own, "JOB_ID"), "12");
    td__texts_fini(&own);
    td__texts_fini(&t);
    td__spec_destroy(r.spec);
    td__config_destroy(c);
}

/* Jobs are told an address at which there is something, from where they are. */
TEST(advertised)
{
    char own[TD_ADDRESS_BYTES], far[TD_ADDRESS_BYTES], got[TD_ADDRESS_BYTES];

    td__socket_own_host(own);
    CHECK_OK(td__socket_join(own, "40123", far));
    const struct {
        const char *set, *listens, *tracker, *want;
    } CASES[] = {
        {"data.keep_s=0", "127.0.0.1:40123", "process", "127.0.0.1:40123"},
        {"data.keep_s=0", "0.0.0.0:40123", "process", "127.0.0.1:40123"},
        {"data.keep_s=0", "[::]:40123", "process", "127.0.0.1:40123"},
        {"data.keep_s=0", "0.0.0.0:40123", "docker", far},
        {"docker.network=host", "0.0.0.0:40123", "docker", "127.0.0.1:40123"},
        {"data.keep_s=0", "[::]:40123", "kubernetes", far},
        {"data.keep_s=0", "10.1.2.3:6003", "slurm", "10.1.2.3:6003"},
        {"grpc.advertise=train:6003", "0.0.0.0:51001", "kubernetes", "train:6003"},
        {"grpc.advertise=train:6003", "0.0.0.0:51001", "process", "train:6003"},
    };
    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__service_config *c;
        CHECK_OK(td__config_load(NULL, &CASES[i].set, 1, &c));
        td__advertised(c, CASES[i].listens, CASES[i].tracker, got);
        assert_string_equal(got, CASES[i].want);
        td__config_destroy(c);
    }
    static const char *const BAD[] = {"grpc.advertise=train", "grpc.advertise='train:x'"};
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td__service_config *c;
        CHECK_STATUS(td__config_load(NULL, &BAD[i], 1, &c), TD_EINVAL);
        CHECK(strstr(td_last_error(), "grpc.advertise: expected HOST:PORT"), "%s", td_last_error());
    }
}

TEST(allow_list)
{
    static const char *const SETS[] = {
        "security.env_allow=[COLOUR, MY_*, AWS_REGION, LD_PRELOAD]",
        "security.tokens=[{name: a, sha256: "
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]"};
    static const struct {
        const char *name;
        bool parameter;
        td__answer want;
    } CASES[] = {
        {"LR", true, TD_ANSWER_OK},
        {"LR", false, TD_ANSWER_DENIED},
        {"COLOUR", false, TD_ANSWER_OK},
        {"MY_THING", false, TD_ANSWER_OK},
        {"lower", true, TD_ANSWER_DENIED},
        {"EPOCHS", true, TD_ANSWER_OK},
        {"BATCH_SIZE", true, TD_ANSWER_OK},
        {"FC_SIZE", true, TD_ANSWER_OK},
        {"PARALLEL_INSTANCES", true, TD_ANSWER_OK},
        {"PARAM_WHATEVER", true, TD_ANSWER_OK},
        {"PARAM_WHATEVER", false, TD_ANSWER_DENIED},
        {"MY_THING", true, TD_ANSWER_OK},
        {"CLASSPATH", true, TD_ANSWER_DENIED},
        {"LUA_INIT", true, TD_ANSWER_DENIED},
        {"R_PROFILE", true, TD_ANSWER_DENIED},
        {"PHPRC", true, TD_ANSWER_DENIED},
        {"XLA_FLAGS", true, TD_ANSWER_DENIED},
        {"PATH", true, TD_ANSWER_DENIED},
        {"LD_PRELOAD", true, TD_ANSWER_DENIED},
        {"LD_LIBRARY_PATH", false, TD_ANSWER_DENIED},
        {"PYTHONPATH", true, TD_ANSWER_DENIED},
        {"OPENSSL_CONF", true, TD_ANSWER_DENIED},
        {"SSL_CERT_FILE", true, TD_ANSWER_DENIED},
        {"CUDA_INJECTION64_PATH", true, TD_ANSWER_DENIED},
        {"NVTX_INJECTION64_PATH", true, TD_ANSWER_DENIED},
        {"NCCL_NET_PLUGIN", true, TD_ANSWER_DENIED},
        {"NCCL_TUNER_PLUGIN", true, TD_ANSWER_DENIED},
        {"NCCL_DEBUG", true, TD_ANSWER_OK},
        {"OMP_TOOL_LIBRARIES", true, TD_ANSWER_DENIED},
        {"CURL_CA_BUNDLE", true, TD_ANSWER_DENIED},
        {"GNUTLS_SYSTEM_PRIORITY_FILE", true, TD_ANSWER_DENIED},
        {"GETCONF_DIR", true, TD_ANSWER_DENIED},
        {"LOCALDOMAIN", true, TD_ANSWER_DENIED},
        {"NIS_PATH", true, TD_ANSWER_DENIED},
        {"RESOLV_HOST_CONF", true, TD_ANSWER_DENIED},
        {"TZDIR", true, TD_ANSWER_DENIED},
        {"HTTPS_PROXY", true, TD_ANSWER_DENIED},
        {"AWS_ENDPOINT_URL", true, TD_ANSWER_DENIED},
        {"AWS_REGION", false, TD_ANSWER_OK}, /* the service's owner has said so */
        {"KUBECONFIG", true, TD_ANSWER_DENIED},
        {"RANK", true, TD_ANSWER_DENIED},
        {"MINIO_SERVER", true, TD_ANSWER_DENIED},
        {"TANDEM_STORE", true, TD_ANSWER_DENIED},
        {"A=B", true, TD_ANSWER_INVALID},
        {"", true, TD_ANSWER_INVALID},
        {"1A", true, TD_ANSWER_INVALID},
    };
    td__service_config *c;

    CHECK_OK(td__config_load(NULL, SETS, 2, &c));
    for (int i = 0; i < TD_LEN(CASES); i++)
        if (td__env_check(c, CASES[i].name, CASES[i].parameter) != CASES[i].want)
            fail_msg("%s: %s", CASES[i].name, td_last_error());
    td__config_destroy(c);
    /* Who trusts everybody with commands may trust them with variables, but not with these. */
    CHECK_OK(td__config_load(NULL, NULL, 0, &c));
    assert_int_equal(td__env_check(c, "lower", true), TD_ANSWER_OK);
    assert_int_equal(td__env_check(c, "PATH", true), TD_ANSWER_DENIED);
    assert_int_equal(td__env_check(c, "https_proxy", false), TD_ANSWER_DENIED);
    assert_int_equal(td__env_check(c, "All_Proxy", false), TD_ANSWER_DENIED);
    td__config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks), cmocka_unit_test(ranks_of_tandem),
                                       cmocka_unit_test(shared), cmocka_unit_test(advertised),
                                       cmocka_unit_test(allow_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
