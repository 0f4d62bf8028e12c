/* api_openapi.c -- the description of the API in OpenAPI 3.0, made from the rows of routes.def and
 * of spec.def, so that it cannot differ from them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "service/http/api_impl.h"
#include "service/spec.h"

typedef struct description {
    const char *method, *path, *scope, *body, *handler, *summary, *query;
} description;

static const description ROUTES[] = {
#define TD_ROUTE(method, path, scope, body, handler, summary, query) \
    {#method, path, #scope, #body, #handler, summary, query},
#include "service/http/routes.def"
#undef TD_ROUTE
};

/* "/v1/jobs/{id}/artifacts/{name...}" without the dots, which OpenAPI does not know. */
static void path_text(td__text *t, const char *path)
{
    td__text plain = {0};
    for (; *path; path++)
        if (*path != '.' || !strstr(path, "}") || strcspn(path, "}") > 3)
            td__text_append(&plain, path, 1);
    td__text_json(t, plain.data ? plain.data : "");
    td__text_fini(&plain);
}

static void parameter(td__text *t, bool *first, const char *in, const char *name, size_t n,
                      const char *help, size_t n_help)
{
    char text[512];
    td__text_add(t, *first ? "" : ",");
    *first = false;
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    td__text_printf(t, "{\"name\":");
    td__text_json(t, text);
    td__text_printf(t, ",\"in\":\"%s\",\"required\":%s,\"schema\":{\"type\":\"string\"}", in,
                    strcmp(in, "path") == 0 ? "true" : "false");
    if (n_help) {
        snprintf(text, sizeof text, "%.*s", (int)n_help, help);
        td__text_add(t, ",\"description\":");
        td__text_json(t, text);
    }
    td__text_add(t, "}");
}

static void parameters(td__text *t, const description *d)
{
    bool first = true;
    td__text_add(t, "\"parameters\":[");
    for (const char *p = d->path; (p = strchr(p, '{')); p++)
        parameter(t, &first, "path", p + 1, strcspn(p + 1, ".}"), "", 0);
    for (const char *q = d->query; *q;) {
        size_t n = strcspn(q, ":"), all = strcspn(q, ";");
        const char *help = q + n + 1 + strspn(q + n + 1, " ");
        parameter(t, &first, "query", q, n, help, (size_t)(q + all - help));
        q += all + (q[all] == ';');
        q += strspn(q, " ");
    }
    if (strcmp(d->handler, "submit") == 0)
        parameter(t, &first, "header", "Idempotency-Key", 15, "", 0);
    td__text_add(t, "]");
}

static const char *answer_type(const description *d)
{
    static const struct {
        const char *handler, *type;
    } OTHERS[] = {
        {"watch_job", TD_HTTPD_SSE},
        {"watch_all", TD_HTTPD_SSE},
        {"logs", "text/plain"},
        {"metrics", "application/x-ndjson"},
        {"prometheus", "text/plain"},
        {"get_artifact", "application/octet-stream"},
        {"get_object", "application/octet-stream"},
        {"index_page", "text/html"},
        {"page_file", "*/*"},
    };
    for (int i = 0; i < TD_LEN(OTHERS); i++)
        if (strcmp(OTHERS[i].handler, d->handler) == 0)
            return OTHERS[i].type;
    return "application/json";
}

static void operation(td__text *t, const description *d)
{
    td__text_add(t, "\"");
    for (const char *p = d->method; *p; p++)
        td__text_printf(t, "%c", *p + ('a' - 'A'));
    td__text_printf(t, "\":{\"operationId\":\"%s\",\"summary\":", d->handler);
    td__text_json(t, d->summary);
    td__text_add(t, ",");
    parameters(t, d);
    if (strcmp(d->body, "JSON") == 0)
        td__text_printf(t, ",\"requestBody\":{\"content\":{\"application/json\":{\"schema\":%s}}}",
                        strcmp(d->handler, "submit") == 0
                            ? "{\"$ref\":\"#/components/schemas/Job\"}"
                            : "{\"type\":\"object\"}");
    else if (strcmp(d->body, "FILE") == 0)
        td__text_add(t, ",\"requestBody\":{\"content\":{\"application/octet-stream\":{\"schema\":"
                        "{\"type\":\"string\",\"format\":\"binary\"}}}}");
    td__text_printf(t,
                    ",\"responses\":{\"2XX\":{\"description\":\"done\",\"content\":{\"%s\":{}}},"
                    "\"default\":{\"$ref\":\"#/components/responses/Error\"}}",
                    answer_type(d));
    if (strcmp(d->scope, "NONE") != 0)
        td__text_add(t, ",\"security\":[{\"token\":[]}]");
    td__text_add(t, "}");
}

static void key_schema(td__text *t, const td__key *k)
{
    static const char *const TYPES[] = {
        [TD_KEY_INT] = "integer",  [TD_KEY_REAL] = "number",  [TD_KEY_BOOL] = "boolean",
        [TD_KEY_TEXT] = "string",  [TD_KEY_WORD] = "string",  [TD_KEY_INTS] = "integer",
        [TD_KEY_TEXTS] = "string", [TD_KEY_WORDS] = "string", [TD_KEY_TREE] = "object",
    };
    bool list = k->type == TD_KEY_INTS || k->type == TD_KEY_TEXTS || k->type == TD_KEY_WORDS;
    const char *type = strcmp(k->path, "job") == 0 ? "string" : TYPES[k->type]; /* a file's text */
    td__text_printf(
        t, list ? "{\"type\":\"array\",\"items\":{\"type\":\"%s\"}" : "{\"type\":\"%s\"", type);
    td__text_add(t, ",\"description\":");
    td__text_json(t, k->help);
    if (k->words && k->type == TD_KEY_WORD) {
        td__text_add(t, ",\"enum\":[\"");
        for (const char *w = k->words; *w; w++)
            td__text_add(t, *w == ' ' ? "\",\"" : (char[]){*w, 0});
        td__text_add(t, "\"]");
    }
    td__text_add(t, "}");
}

/* The keys of a spec; "resources.slots" lies in an object of its own. */
static void job_schema(td__text *t)
{
    size_t open = 0; /* length of the section that is open */
    bool first = true;
    td__text_add(t, "\"Job\":{\"type\":\"object\",\"properties\":{");
    for (const td__key *k = td__spec_keys; k->path; k++) {
        const char *dot = strchr(k->path, '.');
        size_t section = dot ? (size_t)(dot - k->path) : 0;
        bool same = open == section && (!open || strncmp(k[-1].path, k->path, open + 1) == 0);
        if (!same && open)
            td__text_add(t, "}}");
        if (!first)
            td__text_add(t, ",");
        if (!same && section)
            td__text_printf(t, "\"%.*s\":{\"type\":\"object\",\"properties\":{", (int)section,
                            k->path);
        open = section;
        first = false;
        td__text_json(t, dot ? dot + 1 : k->path);
        td__text_add(t, ":");
        key_schema(t, k);
    }
    td__text_add(t, open ? "}}}}" : "}}");
}

/* The description of the API in OpenAPI 3.0, from routes.def and spec.def. */
static void write_openapi(td__text *t)
{
    td__text_add(t, "{\"openapi\":\"3.0.3\",\"info\":{\"title\":\"Tandem training service\","
                    "\"version\":\"1\"},\"paths\":{");
    for (int i = 0; i < TD_LEN(ROUTES); i++) {
        bool again = false, later = false; /* one entry per path, with all its methods */
        for (int k = 0; k < i; k++)
            again |= strcmp(ROUTES[k].path, ROUTES[i].path) == 0;
        if (again)
            continue;
        td__text_add(t, i ? ",\n" : "\n");
        path_text(t, ROUTES[i].path);
        td__text_add(t, ":{");
        for (int k = i; k < TD_LEN(ROUTES); k++)
            if (strcmp(ROUTES[k].path, ROUTES[i].path) == 0) {
                td__text_add(t, later ? "," : "");
                operation(t, &ROUTES[k]);
                later = true;
            }
        td__text_add(t, "}");
    }
    td__text_add(t,
                 "},\"components\":{\"securitySchemes\":{\"token\":{\"type\":\"http\","
                 "\"scheme\":\"bearer\"}},\"responses\":{\"Error\":{\"description\":\"refused or "
                 "failed\",\"content\":{\"application/json\":{\"schema\":{\"type\":\"object\","
                 "\"properties\":{\"error\":{\"type\":\"object\",\"properties\":{\"code\":"
                 "{\"type\":\"string\"},\"message\":{\"type\":\"string\"}}}}}}}}},\"schemas\":{");
    job_schema(t);
    td__text_add(t, "}}}\n");
}

void td__http_openapi(void *arg, td__httpd_request *r)
{
    td__text t = {0};
    (void)arg;
    write_openapi(&t);
    td__httpd_reply_json(r, 200, &t);
}
