/* Fuzzer: answers of other systems: pods and events as lines of JSON, a container's output in
 * frames, lists of S3. The first byte chooses which. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>

#include "remote/s3_xml.h"
#include "service/track/docker_api.h"
#include "service/track/kube_objects.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static bool on_line(void *user, json_t *o)
{
    td__seen seen;
    int member;
    (void)user;
    return td__kube_seen(json_object_get(o, "object") ? json_object_get(o, "object") : o, &member,
                         &seen) ||
           json_object_size(o) > 0;
}

static bool on_output(void *user, const void *data, size_t nbytes)
{
    (void)data;
    *(size_t *)user += nbytes;
    return true;
}

static void read_list(const uint8_t *data, size_t nbytes)
{
    td__text t = {0};
    td__s3_xml x;
    char text[64];

    td__text_append(&t, (const char *)data, nbytes);
    for (td__s3_xml_init(&x, &t); td__s3_xml_next(&x, "Contents");)
        (void)!td__s3_xml_text(&x, "Key", text, sizeof text);
    (void)!td__s3_xml_whole_text(&t, "NextContinuationToken", text, sizeof text);
    td__text_fini(&t);
}

/* In two pieces, so that what is cut is put together again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    if (nbytes < 2)
        return 0;
    uint8_t which = data[0] % 3;
    size_t cut = data[1] % nbytes, total = 0;
    td__json_lines lines = {.line = on_line};
    td__docker_frames frames = {.sink = on_output, .user = &total};

    switch (which) {
    case 0:
        if (td__json_lines_feed(&lines, data, cut))
            (void)!td__json_lines_feed(&lines, data + cut, nbytes - cut);
        td__json_lines_fini(&lines);
        break;
    case 1:
        if (td__docker_unframe(&frames, data, cut))
            (void)!td__docker_unframe(&frames, data + cut, nbytes - cut);
        break;
    default: read_list(data, nbytes);
    }
    return 0;
}
