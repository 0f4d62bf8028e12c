/* docker_api.c -- the Docker Engine's API over its socket (see docker_api.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/docker_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "remote/url.h"

enum { LIMIT_MS = 60000, PULL_MS = 3600000 };

td_status td__docker_call_api(td__http_pool *p, const td__docker_call *c)
{
    static const char *const JSON[] = {"Content-Type: application/json"};
    td__http_response a;
    td__text url = {0};
    td__text body = {0};
    td_status st;

    a = (td__http_response){0};
    td__text_printf(&url, "http://docker%s", c->path);
    if (c->body)
        td__json_write(c->body, &body);
    TD_TRY_OR(st, done, td__text_status(&body));
    TD_TRY_OR(st, done, td__text_status(&url));
    td__http_request q = {
        .method = c->method,
        .url = url.data,
        .headers = JSON,
        .n_headers = c->body ? 1 : 0,
        .body = body.data,
        .body_nbytes = body.used,
        .until = td__deadline_in_ms(c->limit_ms ? c->limit_ms : LIMIT_MS),
        .idle_ms = c->limit_ms ? c->limit_ms : LIMIT_MS,
    };
    st = td__http_pool_call(p, &q, &a);
    if (c->status)
        *c->status = a.status;
    if (!st && c->out) {
        *c->out = a.body.used ? json_loadb(a.body.data, a.body.used, 0, NULL) : NULL;
        if (!*c->out)
            st = TD_FAIL(TD_EPROTO, "%s %s: the engine's answer is not JSON", c->method, c->path);
    }
done:
    td__http_response_fini(&a);
    td__text_fini(&url);
    td__text_fini(&body);
    return st;
}

static bool read_container(const json_t *o, td__container *c)
{
    const json_t *labels = json_object_get(o, "Labels");
    const char *id = td__json_text(o, "Id"), *member = td__json_text(labels, TD_DOCKER_MEMBER);
    char *end;

    if (!id[0] || strlen(id) >= sizeof c->id || !member[0])
        return false;
    snprintf(c->id, sizeof c->id, "%s", id);
    snprintf(c->state, sizeof c->state, "%s", td__json_text(o, "State"));
    snprintf(c->name, sizeof c->name, "%s", td__json_text(labels, TD_DOCKER_NAME));
    c->port = (int)strtol(td__json_text(labels, TD_DOCKER_PORT), &end, 10);
    c->member = (int)strtol(member, &end, 10);
    return *end == '\0' && c->member >= 0;
}

td_status td__docker_list(td__http_pool *p, const char *token, td__container **out, int *n)
{
    td__text path = {0}, filter = {0};
    json_t *list = NULL;
    td_status st;

    *out = NULL;
    *n = 0;
    td__text_printf(&filter, "{\"label\":[\"" TD_DOCKER_TOKEN "=%s\"]}", token);
    TD_TRY_OR(st, done, td__text_status(&filter));
    td__text_add(&path, "/containers/json?all=1&filters=");
    td__url_encode(&path, filter.data, false);
    TD_TRY_OR(st, done, td__text_status(&path));
    TD_TRY_OR(st, done,
              td__docker_call_api(
                  p, &(td__docker_call){.method = "GET", .path = path.data, .out = &list}));
    *out = td__calloc(json_array_size(list) + 1, sizeof **out);
    if (!*out) {
        st = TD_FAIL(TD_ENOMEM, "out of memory for a list of containers");
        goto done;
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_container(json_array_get(list, i), &(*out)[*n]))
            ++*n;
done:
    json_decref(list);
    td__text_fini(&path);
    td__text_fini(&filter);
    return st;
}

td_status td__docker_inspect(td__http_pool *p, const char *id, int *status, td__seen *out)
{
    char path[TD_DOCKER_ID + 32];
    json_t *o = NULL;

    snprintf(path, sizeof path, "/containers/%s/json", id);
    TD_TRY(td__docker_call_api(
        p, &(td__docker_call){.method = "GET", .path = path, .out = &o, .status = status}));
    const json_t *state = json_object_get(o, "State"), *code = json_object_get(state, "ExitCode");
    const char *now = td__json_text(state, "Status");
    if (strcmp(now, "exited") == 0 || strcmp(now, "dead") == 0)
        out->state = TD_SEEN_ENDED;
    else if (strcmp(now, "created") == 0 || strcmp(now, "restarting") == 0)
        out->state = TD_SEEN_WAITING;
    else
        out->state = TD_SEEN_RUNNING;
    out->exit_status = json_is_integer(code) ? (int)json_integer_value(code) : -1;
    if (json_is_true(json_object_get(state, "OOMKilled")))
        snprintf(out->text, sizeof out->text, "out of memory (OOMKilled)");
    else
        snprintf(out->text, sizeof out->text, "%.200s", td__json_text(state, "Error"));
    json_decref(o);
    return TD_OK;
}

/* The answer to a pull is lines of progress; a failure is one of them. */
typedef struct pull {
    char error[512];
} pull;

static bool on_progress(void *user, json_t *o)
{
    pull *x = user;
    const char *error = td__json_text(o, "error");
    if (error[0])
        snprintf(x->error, sizeof x->error, "%s", error);
    return true;
}

static td_status pull_now(td__http_pool *h, const char *image)
{
    pull x = {0};
    td__json_lines lines = {.line = on_progress, .user = &x};
    td__text url = {0};
    td__http_response a = {0};
    td__http *client;
    td_status st;

    td__text_add(&url, "http://docker/images/create?fromImage=");
    td__url_encode(&url, image, false);
    /* Without a tag the engine would fetch all of them. */
    const char *slash = strrchr(image, '/');
    if (!strchr(slash ? slash : image, ':') && !strchr(image, '@'))
        td__text_add(&url, "&tag=latest");
    TD_TRY_OR(st, done, td__text_status(&url));
    td__http_request q = {.method = "POST",
                          .url = url.data,
                          .sink = td__json_lines_feed,
                          .sink_user = &lines,
                          .until = td__deadline_in_ms(PULL_MS),
                          .idle_ms = PULL_MS};
    TD_TRY_OR(st, done, td__http_pool_take(h, &client));
    st = td__http_call(client, &q, &a);
    td__http_pool_give(h, client);
    if (!st && x.error[0])
        st = TD_FAIL(TD_EINVAL, "image %s cannot be pulled: %s", image, x.error);
done:
    td__http_response_fini(&a);
    td__json_lines_fini(&lines);
    td__text_fini(&url);
    return st;
}

td_status td__docker_pull(td__http_pool *p, const char *image, const char *policy)
{
    td__text path = {0};
    int status = 0;
    td_status st;

    if (strcmp(policy, "never") == 0)
        return TD_OK;
    if (strcmp(policy, "always") == 0)
        return pull_now(p, image);
    td__text_add(&path, "/images/");
    td__url_encode(&path, image, true);
    td__text_add(&path, "/json");
    TD_TRY_OR(st, done, td__text_status(&path));
    st = td__docker_call_api(
        p, &(td__docker_call){.method = "GET", .path = path.data, .status = &status});
    if (st && status == 404)
        st = pull_now(p, image);
done:
    td__text_fini(&path);
    return st;
}

bool td__docker_unframe(void *frames, const void *data, size_t nbytes)
{
    td__docker_frames *f = frames;
    const uint8_t *at = data, *end = at + nbytes;

    while (at < end) {
        if (f->left == 0) {
            f->head[f->have++] = *at++;
            if (f->have < sizeof f->head)
                continue;
            f->have = 0;
            f->left = (uint32_t)f->head[4] << 24 | (uint32_t)f->head[5] << 16 |
                      (uint32_t)f->head[6] << 8 | f->head[7];
            continue;
        }
        size_t n = (size_t)(end - at) < f->left ? (size_t)(end - at) : f->left;
        if (!f->sink(f->user, at, n))
            return false;
        at += n;
        f->left -= (uint32_t)n;
    }
    return true;
}
