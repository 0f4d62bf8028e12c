/* results.c -- see results.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/results.h"

#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "service/track/bundle.h"
#include "service/track/publish.h"

enum { SEND_MS = 3600 * 1000 }; /* a server that says nothing ends it before */

const char *td__results_env(const char *const *env, const char *name)
{
    size_t n = strlen(name);

    for (; env && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

/* With the keys that the service has given; else with those of this process. */
static td_status send(const td__results *r, const char *url)
{
    td__s3_opts s3 = {.access_key = td__results_env(r->env, "AWS_ACCESS_KEY_ID"),
                      .secret_key = td__results_env(r->env, "AWS_SECRET_ACCESS_KEY"),
                      .session_token = td__results_env(r->env, "AWS_SESSION_TOKEN"),
                      .region = td__results_env(r->env, "AWS_REGION"),
                      .endpoint = td__results_env(r->env, "AWS_ENDPOINT_URL")};
    td__remote *remote;

    TD_TRY(td__remote_create(&(td__remote_opts){.s3 = s3.access_key ? &s3 : NULL}, &remote));
    if (r->sending)
        r->sending(r->arg, remote);
    td_status st = td__bundle_send(remote, r->artifacts, r->list, url, r->stop, r->arg,
                                   td__deadline_in_ms(SEND_MS));
    if (r->sending)
        r->sending(r->arg, NULL);
    td__remote_destroy(remote);
    return st;
}

td_status td__results_publish(const td__results *r)
{
    const char *url = td__results_env(r->env, "TANDEM_ARTIFACTS_URL");
    td__artifact_opts o = {.stop = r->stop, .arg = r->arg, .left_out = r->left_out};

    if (access(r->artifacts, F_OK))
        return TD_OK;
    if (r->run)
        TD_TRY(td__publish_run(r->run, r->artifacts, &o));
    TD_TRY(td__artifact_list_write(r->artifacts, r->list, &o));
    return url ? send(r, url) : TD_OK;
}
