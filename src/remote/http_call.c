/* http_call.c -- requests that are repeated while it is worth it, and the errors of answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "remote/http_impl.h"
#include "remote/url.h"

enum { FIRST_PAUSE_MS = 200, LONGEST_PAUSE_MS = 10000, MESSAGE_BYTES = 512 };

bool td__http_worth_repeating(td_status st, int status)
{
    if (st)
        return st == TD_EPEER || st == TD_ETIMEDOUT;
    return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

/* 200 ms, 400 ms, ... 10 s, each lengthened by up to a quarter so that clients do not march in
 * step after a failure that all of them saw. */
static uint64_t pause_ms(const td__http *h, int next)
{
    uint64_t ms = FIRST_PAUSE_MS;
    for (int i = 1; i < next && ms < LONGEST_PAUSE_MS; i++)
        ms *= 2;
    ms = ms < LONGEST_PAUSE_MS ? ms : LONGEST_PAUSE_MS;
    return ms + (td__clock_ns() ^ (uint64_t)(uintptr_t)h) % (ms / 4 + 1);
}

td_status td__http_pause(td__http *h, int next, uint64_t retry_after_ms, td__deadline until)
{
    td__deadline end = td__deadline_in_ms(retry_after_ms ? retry_after_ms : pause_ms(h, next));

    if (end >= until)
        return TD_ETIMEDOUT; /* the error of the attempt before stays the text */
    while (!td__deadline_passed(end)) {
        if (atomic_load(&h->stopped))
            return TD_FAIL(TD_EABORTED, "stopped");
        curl_multi_poll(h->multi, NULL, 0, td__deadline_left_ms(end, 1000), NULL);
    }
    return TD_OK;
}

/* The text between <tag> and </tag>; false: there is none. */
static bool xml_text(const char *xml, const char *tag, char *out, size_t nbytes)
{
    char open[32];
    snprintf(open, sizeof open, "<%s>", tag);
    const char *at = strstr(xml, open);
    if (!at)
        return false;
    at += strlen(open);
    snprintf(out, nbytes, "%.*s", (int)strcspn(at, "<"), at);
    return true;
}

/* What the server says: "message" of JSON (Docker, Kubernetes), Code and Message of XML (S3), or
 * the first line of a text. */
static void message_of(const td__text *body, char *out, size_t nbytes)
{
    char code[128], text[MESSAGE_BYTES - 160] = "";
    json_t *j = body->used ? json_loadb(body->data, body->used, 0, NULL) : NULL;
    const char *said = json_string_value(json_object_get(j, "message"));

    out[0] = '\0';
    if (said) {
        snprintf(out, nbytes, "%s", said);
    } else if (body->used && xml_text(body->data, "Code", code, sizeof code)) {
        bool more = xml_text(body->data, "Message", text, sizeof text);
        snprintf(out, nbytes, "%s%s%s", code, more ? ": " : "", text);
    } else if (body->used && body->data[0] != '<' && body->data[0] != '{') {
        snprintf(out, nbytes, "%.*s", (int)strcspn(body->data, "\r\n"), body->data);
    }
    json_decref(j);
}

td_status td__http_refused(const td__http_request *q, const td__http_response *r)
{
    char shown[512], said[MESSAGE_BYTES];

    td__url_shown(q->url, shown, sizeof shown);
    message_of(&r->body, said, sizeof said);
    bool outage = r->status >= 500 || td__http_worth_repeating(TD_OK, r->status);
    return TD_FAIL(outage ? TD_EPEER : TD_EINVAL, "%s %s: status %d%s%s",
                   q->method ? q->method : "GET", shown, r->status, said[0] ? ": " : "", said);
}

/* A repeated POST could do twice what was asked for once. */
static bool may_repeat(const td__http_request *q)
{
    return !q->sink && (q->repeatable || !q->method || strcmp(q->method, "POST") != 0);
}

td_status td__http_call(td__http *h, const td__http_request *q, td__http_response *r)
{
    for (int attempt = 1;; attempt++) {
        td__http_request one = *q;
        td__deadline attempt_end = td__deadline_in_ms(h->opts.attempt_ms);
        td_status st, paused;

        /* A stream is no attempt: it lasts as long as it may. */
        one.until = attempt_end < q->until && !q->sink ? attempt_end : q->until;
        st = td__http_perform(h, &one, r);
        if (!st && r->status >= 200 && r->status < 300)
            return TD_OK;
        bool again = td__http_worth_repeating(st, r->status);
        uint64_t wait = r->retry_after_ms;
        if (!st)
            st = td__http_refused(q, r);
        if (!again || !may_repeat(q) || attempt >= h->opts.attempts ||
            td__deadline_passed(q->until))
            return st;
        TD_LOG(INFO, NET, "attempt %d failed, another follows: %s", attempt, td_last_error());
        paused = td__http_pause(h, attempt, wait, q->until);
        if (paused)
            return paused == TD_ETIMEDOUT ? st : paused;
        td__http_response_fini(r);
    }
}
