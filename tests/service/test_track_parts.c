/* What trackers over other systems are made of: kubeconfigs, pods, frames and lines of streams,
 * names and scripts, commands. The trackers themselves run against real systems
 * (tests/e2e/test_track_*). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/spec.h"
#include "service/track/command.h"
#include "service/track/docker_api.h"
#include "service/track/kube_objects.h"
#include "service/track/kubeconfig.h"
#include "service/track/member_dir.h"
#include "service/track/place.h"
#include "support/check.h"

#define CLUSTER "clusters: [{name: c, cluster: {server: 'https://h:1/'}}]\n"
#define CONTEXT "contexts: [{name: x, context: {cluster: c, user: u, namespace: n}}]\n"

TEST(kubeconfigs)
{
    static const struct {
        const char *text, *context, *error; /* NULL: it is good */
    } CASES[] = {
        {CLUSTER CONTEXT "users: [{name: u, user: {token: t}}]\ncurrent-context: x", NULL, NULL},
        {CLUSTER CONTEXT "users: [{name: u, user: {token: t}}]", "x", NULL},
        {CLUSTER CONTEXT "users: [{name: u, user: {token: t}}]", NULL, "no current-context"},
        {CLUSTER CONTEXT "users: [{name: u, user: {}}]", "y", "no context called 'y'"},
        {CLUSTER CONTEXT "users: []", "x", "no user called 'u'"},
        {CONTEXT "users: [{name: u, user: {}}]", "x", "no cluster called 'c'"},
        {"clusters: [{name: c, cluster: {server: h}}]\n" CONTEXT "users: []", "x", "https://HOST"},
        {CLUSTER CONTEXT "users: [{name: u, user: {client-key-data: '***'}}]", "x", "not base64"},
        {CLUSTER CONTEXT "users: [{name: u, user: {exec: {args: [a]}}}]", "x", "no command"},
        {CLUSTER CONTEXT "users: [{name: u, user: {auth-provider: {name: gcp}}}]", "x", "exec"},
        {"[", "x", "not valid YAML"},
        {"", "x", "no context"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__kubeconfig *k;
        td_status st =
            td__kubeconfig_parse(CASES[i].text, strlen(CASES[i].text), "f", CASES[i].context, &k);
        if (CASES[i].error) {
            CHECK(st && strstr(td_last_error(), CASES[i].error), "%zu: %s", i, td_last_error());
            continue;
        }
        CHECK_OK(st);
        assert_string_equal(k->server, "https://h:1");
        assert_string_equal(k->token, "t");
        assert_string_equal(k->namespace_, "n");
        td__kubeconfig_destroy(k);
    }
}

TEST(kubeconfigs_name_certificates_and_plugins)
{
    static const char TEXT[] =
        "clusters: [{name: c, cluster: {server: https://h, certificate-authority-data: QUJD}}]\n"
        "users: [{name: u, user: {client-certificate: /a/c.pem, client-key: k.pem, exec: {command: "
        "aws, args: [eks, token], env: [{name: A, value: b}]}}}]\n" CONTEXT "current-context: x";
    td__kubeconfig *k;

    CHECK_OK(td__kubeconfig_parse(TEXT, strlen(TEXT), "/etc/me/config", NULL, &k));
    assert_string_equal(k->tls.ca_pem, "ABC");
    assert_string_equal(k->tls.cert_file, "/a/c.pem");
    assert_string_equal(k->tls.key_file, "/etc/me/k.pem");
    assert_string_equal(k->exec_argv[0], "aws");
    assert_string_equal(k->exec_argv[2], "token");
    CHECK(!k->exec_argv[3], "too many arguments");
    assert_string_equal(k->exec_env[0], "A=b");
    td__kubeconfig_destroy(k);
}

TEST(credentials_of_plugins)
{
    static const char GOOD[] =
        "{\"status\": {\"token\": \"t\", \"expirationTimestamp\": \"2013-05-24T00:00:00Z\"}}";
    const char *token, *cert, *key;
    int64_t expires;
    td__arena *a;

    CHECK_OK(td__arena_create(&a));
    CHECK_OK(td__kubeconfig_credential(a, GOOD, strlen(GOOD), &token, &cert, &key, &expires));
    CHECK(strcmp(token, "t") == 0 && !cert && !key, "token '%s'", token);
    CHECK_EQ_INT(expires, 1369353600);
    CHECK_STATUS(td__kubeconfig_credential(a, "{}", 2, &token, &cert, &key, &expires), TD_EPROTO);
    CHECK_STATUS(td__kubeconfig_credential(a, "x", 1, &token, &cert, &key, &expires), TD_EPROTO);
    td__arena_destroy(a);
}

TEST(pods)
{
    static const struct {
        const char *status;
        td__seen_state state;
        int exit_status;
        td__exit_class exit_class;
        bool hopeless;
        const char *text;
    } CASES[] = {
        {"{}", TD_SEEN_WAITING, 0, 0, false, ""},
        {"{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
         "\"reason\":\"Unschedulable\",\"message\":\"no nodes\"}]}",
         TD_SEEN_WAITING, 0, 0, false, "Unschedulable: no nodes"},
        {"{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":"
         "\"ContainerCreating\"}}}]}",
         TD_SEEN_WAITING, 0, 0, false, ""},
        {"{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":"
         "\"ErrImageNeverPull\",\"message\":\"m\"}}}]}",
         TD_SEEN_WAITING, 0, 0, true, "ErrImageNeverPull: m"},
        {"{\"phase\":\"Running\"}", TD_SEEN_RUNNING, 0, 0, false, ""},
        {"{\"phase\":\"Succeeded\"}", TD_SEEN_ENDED, 0, 0, false, ""},
        {"{\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"exitCode\":"
         "137,\"reason\":\"OOMKilled\"}}}]}",
         TD_SEEN_ENDED, 137, 0, false, "OOMKilled"},
        {"{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"disk\"}", TD_SEEN_ENDED, -1,
         TD_EXIT_CLASS_LOST, false, "Evicted: disk"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__seen s;
        int member = -1;
        json_t *pod = json_pack("{s:{s:{s:s}}, s:o}", "metadata", "labels", TD_KUBE_MEMBER, "3",
                                "status", json_loads(CASES[i].status, 0, NULL));
        CHECK(td__kube_seen(pod, &member, &s), "%zu: not one of ours", i);
        CHECK(member == 3 && s.state == CASES[i].state && s.exit_status == CASES[i].exit_status &&
                  s.exit_class == CASES[i].exit_class && s.hopeless == CASES[i].hopeless &&
                  s.queued == (i == 1) && strcmp(s.text, CASES[i].text) == 0,
              "%zu: state %d, exit status %d, class %d, '%s'", i, (int)s.state, s.exit_status,
              (int)s.exit_class, s.text);
        json_decref(pod);
    }
    json_t *other = json_loads("{\"metadata\": {\"labels\": {}}}", 0, NULL);
    td__seen s;
    int member;
    CHECK(!td__kube_seen(other, &member, &s), "somebody else's pod");
    json_decref(other);
}

static bool collect(void *user, const void *data, size_t nbytes)
{
    td__text_append(user, data, nbytes);
    return true;
}

static bool collect_line(void *user, json_t *o)
{
    td__text_printf(user, "%d;", (int)json_integer_value(json_object_get(o, "n")));
    return true;
}

TEST(streams_may_be_cut_anywhere)
{
    static const char FRAMES[] = "\1\0\0\0\0\0\0\5hello\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\1!";
    static const char LINES[] = "{\"n\":1}\nnot json\n{\"n\":22}\n{\"n\":3";

    for (size_t cut = 0; cut < sizeof FRAMES - 1; cut++) {
        td__text t = {0};
        td__docker_frames f = {.sink = collect, .user = &t};
        CHECK(td__docker_unframe(&f, FRAMES, cut) &&
                  td__docker_unframe(&f, FRAMES + cut, sizeof FRAMES - 1 - cut),
              "refused");
        assert_string_equal(t.data, "hello!");
        td__text_fini(&t);
    }
    for (size_t cut = 0; cut < sizeof LINES - 1; cut++) {
        td__text t = {0};
        td__json_lines l = {.line = collect_line, .user = &t};
        CHECK(td__json_lines_feed(&l, LINES, cut) &&
                  td__json_lines_feed(&l, LINES + cut, sizeof LINES - 1 - cut),
              "refused");
        assert_string_equal(t.data, "1;22;");
        td__json_lines_fini(&l);
        td__text_fini(&t);
    }
}

static td__launch *launch(const char *spec_text)
{
    td__job_spec *spec;
    td__launch *l;
    const char *const env[] = {"A=it's", NULL}, *const command[] = {"train", NULL};

    CHECK_OK(td__spec_parse(spec_text, strlen(spec_text), "spec", &spec));
    td__group g = {.token = "t",
                   .job = 7,
                   .spec = spec,
                   .dir = "/d",
                   .env = env,
                   .command = command,
                   .image = "i"};
    CHECK_OK(td__launch_copy(&g, &l));
    td__spec_destroy(spec);
    return l;
}

/* A pod names its secrets, and a Secret has them; `$(` is nothing special there. */
TEST(pods_do_not_show_secrets)
{
    td__launch *l = launch("resources: {members: 2}");
    const char *const env[] = {"TANDEM_SECRET=hidden $(A)", "AWS_SECRET_ACCESS_KEY=deep", "A=open",
                               NULL};
    const char *const open[] = {"A=open", NULL};
    td__kube_group g = {
        .l = l, .namespace_ = "n", .self = "", .name = "b", .owner = "o", .owner_uid = "u"};
    json_t *pod;

    l->g.env = env;
    CHECK_OK(td__kube_pod(&g, 1, &pod));
    json_t *secret = td__kube_secret(&g);
    char *of_pod = json_dumps(pod, JSON_COMPACT), *of_secret = json_dumps(secret, JSON_COMPACT);
    CHECK(!strstr(of_pod, "hidden") && !strstr(of_pod, "deep") && strstr(of_pod, "\"open\""), "%s",
          of_pod);
    CHECK(strstr(of_pod, "{\"name\":\"TANDEM_SECRET\",\"valueFrom\":{\"secretKeyRef\":{\"name\":"
                         "\"o\",\"key\":\"TANDEM_SECRET\"}}}"),
          "%s", of_pod);
    CHECK(strstr(of_secret, "\"stringData\":{\"TANDEM_SECRET\":\"hidden $(A)\","
                            "\"AWS_SECRET_ACCESS_KEY\":\"deep\"}"),
          "%s", of_secret);
    CHECK(strstr(of_secret, "ownerReferences"), "nobody owns it: %s", of_secret);
    free(of_pod);
    free(of_secret);
    json_decref(pod);
    json_decref(secret);
    l->g.env = open;
    CHECK(!td__kube_secret(&g), "a Secret of nothing");
    td__launch_destroy(l);
}

/* The affinity of a pod of a group of that spec, as JSON; NULL: none. */
static char *affinity_of(const char *spec)
{
    static const char *const none[] = {NULL};
    td__launch *l = launch(spec);
    td__kube_group g = {
        .l = l, .namespace_ = "n", .self = "", .name = "b", .owner = "o", .owner_uid = "u"};
    json_t *pod;

    l->g.env = none;
    CHECK_OK(td__kube_pod(&g, 0, &pod));
    json_t *a = json_object_get(json_object_get(pod, "spec"), "affinity");
    char *text = a ? json_dumps(a, JSON_COMPACT) : NULL;
    json_decref(pod);
    td__launch_destroy(l);
    return text;
}

TEST(pods_are_placed_as_asked)
{
    char *packed = affinity_of("resources: {members: 2}");
    char *spread = affinity_of("resources: {members: 2, pack: false}");
    char *own = affinity_of("resources: {members: 2}\naffinity: '{\"nodeAffinity\": {\"x\": 1}}'");

    CHECK(packed && strstr(packed, "{\"podAffinity\":") && strstr(packed, "kubernetes.io/hostname"),
          "%s", packed);
    CHECK(spread && strstr(spread, "{\"podAntiAffinity\":") && !strstr(spread, "podAffinity\""),
          "%s", spread);
    assert_string_equal(own, "{\"nodeAffinity\":{\"x\":1}}");
    assert_null(affinity_of("resources: {members: 1}"));
    free(packed);
    free(spread);
    free(own);
    /* What is no object is refused. */
    static const char *const none[] = {NULL};
    td__launch *l = launch("affinity: '[1]'");
    td__kube_group g = {
        .l = l, .namespace_ = "n", .self = "", .name = "b", .owner = "o", .owner_uid = "u"};
    json_t *pod;
    l->g.env = none;
    CHECK_STATUS(td__kube_pod(&g, 0, &pod), TD_EINVAL);
    td__launch_destroy(l);
}

TEST(names_follow_the_format)
{
    td__launch *l = launch("name: My run_1");
    char name[64];

    td__launch_name(l, "{job}-{ms}-{name}", 123, false, name, sizeof name);
    assert_string_equal(name, "7-123-My-run_1");
    td__launch_name(l, "{job}-{ms}-{name}", 123, true, name, sizeof name);
    assert_string_equal(name, "7-123-my-run-1");
    td__launch_name(l, "{name}-{ms}", 123, true, name, 9); /* no '-' at the end */
    assert_string_equal(name, "my-run-1");
    td__launch_destroy(l);
}

TEST(scripts_run_all_processes_and_give_the_first_failure)
{
    td__launch *l = launch("resources: {members: 2, processes: 2}");
    td__text script = {0}, out = {0};
    int status;

    CHECK_OK(td__launch_script(l, &(td__group_place){0}, 1, true, &script));
    const char *argv[] = {
        "sh", "-c", script.data, "sh", "sh", "-c", "echo $RANK $A; [ $RANK = 2 ] || exit 5", NULL};
    CHECK_STATUS(
        td__command(
            &(td__command_opts){.argv = argv, .out = &out, .until = td__deadline_in_ms(20000)},
            &status),
        TD_EINVAL);
    CHECK_EQ_INT(status, 5);
    CHECK(strstr(out.data, "2 it's") && strstr(out.data, "3 it's"), "%s", out.data);
    td__text_fini(&out);
    td__text_fini(&script);
    td__launch_destroy(l);
}

/* Each process sees its own share of the GPUs that its host shows the member. */
TEST(processes_share_the_gpus_of_a_member)
{
    static const struct {
        const char *spec, *before, *want[2];
    } CASES[] = {
        {"resources: {members: 2, gpus: 2}", "A=", {"2:0,", "3:1,"}},
        {"resources: {members: 2, gpus: 2}", "CUDA_VISIBLE_DEVICES=7,GPU-a", {"2:7,", "3:GPU-a,"}},
        {"resources: {members: 2, gpus: 4, processes: 2}", "A=", {"2:0,1,", "3:2,3,"}},
        {"resources: {members: 2, gpus: 1, processes: 2}", "A=", {"2:,", "3:,"}},
        {"resources: {members: 2, processes: 2}", "CUDA_VISIBLE_DEVICES=1", {"2:1,", "3:1,"}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__launch *l = launch(CASES[i].spec);
        td__text script = {0}, out = {0};
        int status;
        CHECK_OK(td__launch_script(l, &(td__group_place){0}, 1, true, &script));
        const char *argv[] = {"env",
                              "-u",
                              "CUDA_VISIBLE_DEVICES",
                              CASES[i].before,
                              "sh",
                              "-c",
                              script.data,
                              "sh",
                              "sh",
                              "-c",
                              "echo $RANK:$CUDA_VISIBLE_DEVICES,",
                              NULL};
        CHECK_OK(td__command(
            &(td__command_opts){.argv = argv, .out = &out, .until = td__deadline_in_ms(20000)},
            &status));
        for (int k = 0; k < 2; k++)
            CHECK(strstr(out.data, CASES[i].want[k]), "%zu: no %s in %s", i, CASES[i].want[k],
                  out.data);
        td__text_fini(&out);
        td__text_fini(&script);
        td__launch_destroy(l);
    }
}

/* Where the host's GPUs of each member are known, it gets those and no others. */
TEST(members_have_gpus_of_their_own)
{
    static const struct {
        const char *spec, *before, *want[2];
    } CASES[] = {
        {"resources: {members: 2, gpus: 2}", "A=", {"2:5,", "3:2,"}},
        {"resources: {members: 2, gpus: 2, processes: 1}", "A=", {"1:5,2,", "1:5,2,"}},
        {"resources: {members: 2, gpus: 2, processes: 4}", "A=", {"4:5,2,", "7:5,2,"}},
        {"resources: {members: 2, gpus: 2}", "CUDA_VISIBLE_DEVICES=a,b,c,d,e,f", {"2:f,", "3:c,"}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__launch *l = launch(CASES[i].spec);
        td__text script = {0}, out = {0};
        int status, gpus[] = {0, 1, 5, 2};
        l->gpus = gpus;
        CHECK_OK(td__launch_script(l, &(td__group_place){0}, 1, true, &script));
        const char *argv[] = {"env",
                              "-u",
                              "CUDA_VISIBLE_DEVICES",
                              CASES[i].before,
                              "sh",
                              "-c",
                              script.data,
                              "sh",
                              "sh",
                              "-c",
                              "echo $RANK:$CUDA_VISIBLE_DEVICES,",
                              NULL};
        CHECK_OK(td__command(
            &(td__command_opts){.argv = argv, .out = &out, .until = td__deadline_in_ms(20000)},
            &status));
        for (int k = 0; k < 2; k++)
            CHECK(strstr(out.data, CASES[i].want[k]), "%zu: no %s in %s", i, CASES[i].want[k],
                  out.data);
        td__text_fini(&out);
        td__text_fini(&script);
        td__launch_destroy(l);
    }
}

/* Containers ask for GPUs by number: a count would be the first ones, for everybody. */
TEST(containers_have_gpus_of_their_own)
{
    td__launch *l = launch("resources: {members: 2, gpus: 2}");
    int gpus[] = {0, 1, 5, 2};

    l->gpus = gpus;
    json_t *asked = td__docker_gpus(l, 1);
    char *text = json_dumps(asked, JSON_COMPACT);
    assert_string_equal(text, "[{\"DeviceIDs\":[\"5\",\"2\"],\"Capabilities\":[[\"gpu\"]]}]");
    free(text);
    json_decref(asked);
    td__launch_destroy(l);
}

TEST(hosts_of_ssh)
{
    static const struct {
        const char *text;
        int nbytes, slots, gpus; /* nbytes 0: refused */
    } CASES[] = {
        {"h", 1, 1, -1},      {"h:4", 1, 4, -1},   {"me@h:4/2", 4, 4, 2}, {"fe80::1:4", 7, 4, -1},
        {"h:8/0", 1, 8, 0},   {"h:", 0, 0, 0},     {"h:0", 0, 0, 0},      {"h:4/", 0, 0, 0},
        {"h:4/x", 0, 0, 0},   {"-o:4", 0, 0, 0},   {":4", 0, 0, 0},       {"h:4/2/1", 0, 0, 0},
        {"h:99999", 0, 0, 0}, {"h:4/65", 0, 0, 0}, {"h:+4", 0, 0, 0},     {"a:1,b:2", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        size_t nbytes;
        int slots, gpus;
        bool good = td__place_parse_host(CASES[i].text, &nbytes, &slots, &gpus);
        CHECK(good == (CASES[i].nbytes > 0), "%s", CASES[i].text);
        CHECK(!good || ((int)nbytes == CASES[i].nbytes && slots == CASES[i].slots &&
                        gpus == CASES[i].gpus),
              "%s: %zu bytes, %d slots, %d GPUs", CASES[i].text, nbytes, slots, gpus);
    }
}

static const char *run_script(const char *script, size_t nbytes)
{
    static char said[64];
    char *part = strndup(script, nbytes);
    const char *argv[] = {"sh", "-s", NULL};
    td__text out = {0};

    assert_non_null(part);
    /* a script that is cut off may fail */
    (void)!td__command(
        &(td__command_opts){
            .argv = argv, .input = part, .out = &out, .until = td__deadline_in_ms(20000)},
        NULL);
    snprintf(said, sizeof said, "%s", out.data ? out.data : "");
    td__text_fini(&out);
    free(part);
    return said;
}

/* Whose service died while it was sent, at any byte, is completed by the next one, and begins no
 * member twice; what was made is made once. */
TEST(directories_of_members_are_completed)
{
    td__launch *l = launch("resources: {members: 1}");
    char top[] = "/tmp/td-members-XXXXXX", dir[64];
    const char *rm[] = {"rm", "-rf", top, NULL};
    td__text script = {0};

    assert_non_null(mkdtemp(top));
    snprintf(dir, sizeof dir, "%s/t", top);
    CHECK_OK(td__member_dir_create(l, &(td__group_place){0}, dir, 0, 1, &script));
    td__text_add(&script, "if mkdir claim-0 2>/dev/null; then echo ran >>ran; fi\n");
    td__member_dir_made(&script);
    for (size_t cut = 0; cut < script.used; cut += cut + 60 < script.used ? 37 : 1) {
        td__text ran = {0};
        snprintf(dir, sizeof dir, "%s/t", top);
        const char *count[] = {"sh", "-c", "cat \"$1/ran\"; rm -rf \"$1\"", "sh", dir, NULL};
        run_script(script.data, cut);
        const char *said = run_script(script.data, script.used);
        CHECK(!strcmp(said, "new\n") || (cut + 12 > script.used && !strcmp(said, "old\n")),
              "cut at byte %zu of %zu: '%s'", cut, script.used, said);
        assert_string_equal(run_script(script.data, script.used), "old\n");
        CHECK_OK(td__command(
            &(td__command_opts){.argv = count, .out = &ran, .until = td__deadline_in_ms(20000)},
            NULL));
        CHECK(ran.data && !strcmp(ran.data, "ran\n"), "cut at byte %zu: it ran '%s'", cut,
              ran.data ? ran.data : "");
        td__text_fini(&ran);
    }
    td__text_fini(&script);
    CHECK_OK(
        td__command(&(td__command_opts){.argv = rm, .until = td__deadline_in_ms(20000)}, NULL));
    td__launch_destroy(l);
}

TEST(commands_end_in_time)
{
    const char *slow[] = {"sh", "-c", "cat; sleep 600 & wait", NULL};
    const char *missing[] = {"/no/such/program", NULL};
    const char *angry[] = {"sh", "-c", "echo first >&2; echo last >&2; exit 3", NULL};
    td__text out = {0};
    int status;

    CHECK_STATUS(td__command(&(td__command_opts){.argv = slow,
                                                 .input = "given",
                                                 .out = &out,
                                                 .until = td__deadline_in_ms(200)},
                             &status),
                 TD_ETIMEDOUT);
    assert_string_equal(out.data, "given");
    CHECK_STATUS(
        td__command(
            &(td__command_opts){.argv = missing, .out = &out, .until = td__deadline_in_ms(20000)},
            &status),
        TD_EIO);
    CHECK_STATUS(
        td__command(
            &(td__command_opts){.argv = angry, .out = &out, .until = td__deadline_in_ms(20000)},
            &status),
        TD_EINVAL);
    CHECK(status == 3 && strstr(td_last_error(), "sh: last (exit status 3)"), "%s",
          td_last_error());
    td__text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kubeconfigs),
        cmocka_unit_test(kubeconfigs_name_certificates_and_plugins),
        cmocka_unit_test(credentials_of_plugins),
        cmocka_unit_test(pods),
        cmocka_unit_test(streams_may_be_cut_anywhere),
        cmocka_unit_test(pods_do_not_show_secrets),
        cmocka_unit_test(pods_are_placed_as_asked),
        cmocka_unit_test(names_follow_the_format),
        cmocka_unit_test(scripts_run_all_processes_and_give_the_first_failure),
        cmocka_unit_test(processes_share_the_gpus_of_a_member),
        cmocka_unit_test(members_have_gpus_of_their_own),
        cmocka_unit_test(containers_have_gpus_of_their_own),
        cmocka_unit_test(hosts_of_ssh),
        cmocka_unit_test(directories_of_members_are_completed),
        cmocka_unit_test(commands_end_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
