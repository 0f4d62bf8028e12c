/* spec_load.c -- specs from the JSON that td__spec_json wrote, as the store keeps it.
 *
 * Apart from td__spec_parse, which checks what strangers send: a list of 10,000 jobs reads as many
 * specs, so values go from jansson straight into the members. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "job/keys.h"
#include "service/spec.h"

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "spec of a job: out of memory");
}

static td_status load_pairs(td__job_spec *s, json_t *map, td__pairs *out)
{
    td__pair *list = td__arena_alloc(s->arena, json_object_size(map) * sizeof *list + 1);
    const char *key;
    json_t *value;
    int n = 0;

    if (!list)
        return out_of_memory();
    json_object_foreach(map, key, value)
    {
        const char *text = json_string_value(value);
        list[n].key = td__arena_strdup(s->arena, key);
        list[n].value = td__arena_strdup(s->arena, text ? text : "");
        if (!list[n].key || !list[n].value)
            return out_of_memory();
        n++;
    }
    *out = (td__pairs){list, n};
    return TD_OK;
}

static td_status load_texts(td__job_spec *s, const td__key *k, const json_t *list)
{
    td__tree *t = td__tree_new(s->arena, TD_TREE_LIST, NULL);

    if (!t)
        return out_of_memory();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        td__tree *item = td__tree_scalar(s->arena, text ? text : "", NULL);
        if (!item)
            return out_of_memory();
        td__tree_append(t, NULL, item);
    }
    return td__key_fill(s->arena, k, t, s);
}

static td_status load_scalar(td__job_spec *s, const td__key *k, const json_t *v)
{
    td__tree t = {.kind = TD_TREE_SCALAR};
    char number[64];

    if (json_is_string(v)) {
        t.text = td__arena_strdup(s->arena, json_string_value(v));
    } else if (json_is_integer(v)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        t.text = number;
    } else if (json_is_real(v)) {
        td__real_text(json_real_value(v), number, sizeof number);
        t.text = number;
    } else {
        t.text = json_is_true(v) ? "true" : "false";
    }
    return t.text ? td__key_fill(s->arena, k, &t, s) : out_of_memory();
}

static td_status load(td__job_spec *s, const char *section, json_t *map)
{
    const char *key;
    json_t *v;

    json_object_foreach(map, key, v)
    {
        char path[128];
        if (*section)
            snprintf(path, sizeof path, "%s.%s", section, key);
        const char *full = *section ? path : key;
        const td__key *k = td__keys_find(td__spec_keys, full);
        if (!k && json_is_object(v)) {
            TD_TRY(load(s, full, v));
        } else if (k && json_is_object(v)) {
            td__pairs *pairs = td__spec_map(s, full);
            if (pairs)
                TD_TRY(load_pairs(s, v, pairs));
        } else if (k && k->type == TD_KEY_TREE) { /* the text of a job file */
            s->job_file = td__spec_text(s, json_string_value(v));
        } else if (k && json_is_array(v)) {
            TD_TRY(load_texts(s, k, v));
        } else if (k) {
            TD_TRY(load_scalar(s, k, v));
        }
    }
    return TD_OK;
}

td_status td__spec_load(const char *json, const td__job_spec *defaults, td__job_spec **out)
{
    td__job_spec *s;
    json_error_t e;

    *out = NULL;
    json_t *root = json_loads(json, 0, &e);
    if (!root)
        return TD_FAIL(TD_EPROTO, "store: the spec of a job is damaged: %s", e.text);
    td_status st = td__spec_allocate(&s);
    if (!st) {
        td__arena *a = s->arena;
        *s = *defaults;
        s->arena = a;
        st = load(s, "", root);
        if (st)
            td__spec_destroy(s);
        else
            *out = s;
    }
    json_decref(root);
    return st;
}
