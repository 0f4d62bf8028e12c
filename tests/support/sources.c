/* sources.c -- see sources.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/sources.h"

#include <string.h>
#include <zlib.h>

#include "support/check.h"

td_status source_open(const char *source, const td__source_opts *o, const char *part,
                      td__dataset **d)
{
    const td__source_def *def = td__source_find(source);
    assert_non_null(def);
    return def->open(o, part, d);
}

void *const *source_read(td__dataset *d, int64_t i)
{
    static _Alignas(64) char buffers[TD__MAX_FIELDS][16384];
    static void *out[TD__MAX_FIELDS];

    for (int f = 0; f < d->n_fields; f++) {
        assert_true(td__field_nbytes(&d->fields[f]) <= sizeof buffers[f]);
        out[f] = buffers[f];
    }
    CHECK_OK(td__dataset_read(d, &i, 1, NULL, out));
    return out;
}

void source_write_text(const char *name, const char *text)
{
    check_write_file(check_path(name), text, strlen(text));
}

void source_write_gz(const char *name, const void *data, size_t nbytes)
{
    gzFile f = gzopen(check_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, data, (unsigned)nbytes), nbytes);
    gzclose(f);
}

void source_refused(const char *source, const td__source_opts *o, const char *part, td_status want,
                    const char *text)
{
    td__dataset *d;
    td_status st = source_open(source, o, part, &d);

    CHECK(st == want, "%s: %s (%s), expected '%s'", source, td_status_name(st), td_last_error(),
          text);
    CHECK(strstr(td_last_error(), text), "%s says '%s', expected '%s'", source, td_last_error(),
          text);
    CHECK(!strchr(td_last_error(), '\n'), "%s: more than one line", source);
}
