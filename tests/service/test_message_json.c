/* Protobuf messages as JSON and back; specs of jobs in both forms have the same keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "metadata_store.pb-c.h"
#include "service/message_json.h"
#include "service/spec.h"
#include "support/check.h"
#include "tandem.pb-c.h"

static ProtobufCMessage *from(td__arena *a, const ProtobufCMessageDescriptor *d, const char *json)
{
    ProtobufCMessage *m;

    CHECK_OK(td__message_from_json(a, d, json, strlen(json), &m));
    return m;
}

static void expect_same(const ProtobufCMessageDescriptor *d, const char *json)
{
    td__arena *a;
    td__text out = {0};

    CHECK_OK(td__arena_create(&a));
    td__message_to_json(from(a, d, json), &out);
    assert_string_equal(out.data, json);
    td__text_fini(&out);
    td__arena_destroy(a);
}

TEST(json_survives_the_way_through_a_message)
{
    expect_same(&metadata_store__run_info__descriptor, "{}");
    expect_same(&metadata_store__run_info__descriptor,
                "{\"start_time\": \"a \\\"b\\\"\\u000a\", \"success\": true, \"run_id\": \"7\", "
                "\"tracing\": {\"dataset_id\": \"1\"}, "
                "\"epochs\": {\"0-1\": {\"epoch_id\": \"0-1\", \"metrics\": {\"x\": \"0.5\", "
                "\"y\": \"\"}}}}");
    expect_same(&tandem__v1__job_spec__descriptor,
                "{\"name\": \"n\", \"sets\": [\"a=1\", \"b=2\"], \"labels\": {\"team\": \"x\"}, "
                "\"priority\": -3, \"resources\": {\"slots\": 0, \"memory_mb\": 5000000000, "
                "\"pack\": false}, \"grace_s\": 0, \"preemptible\": true}");
    expect_same(&tandem__v1__job__descriptor, "{\"job_id\": 1, \"state\": \"CANCELLED\"}");
    expect_same(&tandem__v1__quota__descriptor, "{\"user\": \"*\", \"gpus\": 0, \"weight\": 0.5}");
}

TEST(values_of_another_type_are_refused)
{
    static const char *const rows[] = {"[]",
                                       "{",
                                       "{\"name\": 1}",
                                       "{\"priority\": \"high\"}",
                                       "{\"sets\": \"a=1\"}",
                                       "{\"labels\": [\"a\"]}",
                                       "{\"labels\": {\"a\": 1}}",
                                       "{\"resources\": 4}",
                                       "{\"preemptible\": 1}"};
    td__arena *a;

    CHECK_OK(td__arena_create(&a));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ProtobufCMessage *m;

        CHECK(td__message_from_json(a, &tandem__v1__job_spec__descriptor, rows[i], strlen(rows[i]),
                                    &m) == TD_EPROTO,
              "%s", rows[i]);
    }
    td__arena_destroy(a);
}

/* A key that is added to spec.def without a field in tandem.proto cannot be submitted by gRPC. */
TEST(every_key_of_a_spec_is_a_field_of_its_message)
{
    int keys = 0;

    for (const td__key *k = td__spec_keys; k->path; k++, keys++) {
        const ProtobufCMessageDescriptor *d = &tandem__v1__job_spec__descriptor;
        const ProtobufCFieldDescriptor *f;
        char part[64];
        const char *dot = strchr(k->path, '.');

        snprintf(part, sizeof part, "%.*s", (int)(dot ? dot - k->path : 63), k->path);
        f = protobuf_c_message_descriptor_get_field_by_name(d, part);
        if (f && dot)
            f = protobuf_c_message_descriptor_get_field_by_name(f->descriptor, dot + 1);
        CHECK(f, "JobSpec has no field %s", k->path);
    }
    CHECK(keys > 30, "only %d keys", keys);
}

TEST(a_spec_comes_back_as_it_was_submitted)
{
    static const char json[] =
        "{\"name\": \"n\", \"algorithm\": \"a\", \"parameters\": {\"LR\": \"4\"}, "
        "\"job\": \"model: [linear]\\u000a\", \"sets\": [\"a=3\"], \"labels\": {\"team\": "
        "\"x\"}, \"priority\": 5, \"resources\": {\"members\": 3, \"slots\": 0, \"pack\": false}, "
        "\"deadline_s\": 60, \"grace_s\": 0, \"retries\": {\"max\": 2, \"backoff_s\": 0, "
        "\"permanent\": true}, \"restarts\": {\"members\": 1}}";
    td__arena *a;
    td__text text = {0}, again = {0};
    td__job_spec *s;

    CHECK_OK(td__arena_create(&a));
    td__message_to_json(from(a, &tandem__v1__job_spec__descriptor, json), &text);
    CHECK_OK(td__spec_parse(text.data, text.used, "spec", &s));
    CHECK_EQ_INT(s->members, 3);
    CHECK_EQ_INT(s->slots, 0);
    CHECK_EQ_INT(s->grace_s, 0);
    CHECK_EQ_INT(s->backoff_s, 0);
    CHECK_EQ_INT(s->pack, 0);
    assert_string_equal(s->job_file, "model: [linear]\n");
    td__text_clear(&text);
    td__spec_json_public(s, &text);
    td__message_to_json(from(a, &tandem__v1__job_spec__descriptor, text.data), &again);
    assert_string_equal(again.data, json);
    td__spec_destroy(s);
    td__text_fini(&text);
    td__text_fini(&again);
    td__arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_survives_the_way_through_a_message),
        cmocka_unit_test(values_of_another_type_are_refused),
        cmocka_unit_test(every_key_of_a_spec_is_a_field_of_its_message),
        cmocka_unit_test(a_spec_comes_back_as_it_was_submitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
