/* golden_json.c -- see golden_json.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/golden_json.h"

#include <math.h>

#include "support/check.h"

json_t *golden_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);

    CHECK(root, "%s:%d: %s", path, error.line, error.text);
    return root;
}

const json_t *golden_get(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    CHECK(v, "there is no '%s'", key);
    return v;
}

const char *golden_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(golden_get(object, key));

    CHECK(text, "'%s' is no text", key);
    return text;
}

static double number(const json_t *v, const char *key)
{
    CHECK(json_is_number(v) || json_is_null(v), "'%s' is no number", key);
    return json_is_null(v) ? (double)NAN : json_number_value(v);
}

double golden_real(const json_t *object, const char *key)
{
    return number(golden_get(object, key), key);
}

int64_t golden_int(const json_t *object, const char *key)
{
    const json_t *v = golden_get(object, key);

    CHECK(json_is_integer(v), "'%s' is no whole number", key);
    return json_integer_value(v);
}

int64_t golden_list(const json_t *object, const char *key, double *out, int64_t most)
{
    const json_t *list = golden_get(object, key);
    int64_t n = (int64_t)json_array_size(list);

    CHECK(json_is_array(list) && n <= most, "'%s' has %d numbers, expected at most %d", key, (int)n,
          (int)most);
    for (int64_t i = 0; i < n; i++)
        out[i] = number(json_array_get(list, (size_t)i), key);
    return n;
}
