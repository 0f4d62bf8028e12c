/* fail.c -- the per-thread text of the last failure, and the end of a broken invariant. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/control.h"
#include "base/log.h"

enum { TEXT_BYTES = 1024 };

static _Thread_local char last_text[TEXT_BYTES];

const char *td_last_error(void)
{
    return last_text;
}

/* A text may hold names out of files; it stays one line that is safe to print. */
static void hide_controls(char *text)
{
    for (size_t n; *text; text += n ? n : 1)
        if ((n = td__control_bytes(text)))
            memset(text, '?', n);
}

td_status td__fail(td_status code, const char *file, int line, const char *fmt, ...)
{
    /* By way of a second buffer, because an argument may be td_last_error() itself. */
    char text[TEXT_BYTES];
    va_list ap;

    TD_ASSERT(code != TD_OK, "a failure with status OK (%s:%d)", file, line);
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hide_controls(text);
    memcpy(last_text, text, strlen(text) + 1);
    TD_LOG(DEBUG, BASE, "%s: %s (%s:%d)", td_status_name(code), text, file, line);
    return code;
}

void td__trail(td_status st, const char *what, const char *file, int line)
{
    TD_LOG(DEBUG, BASE, "%s from %s (%s:%d)", td_status_name(st), what, file, line);
}

void td__assert_failed(const char *cond, const char *file, int line, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    /* Whatever the level: these are the last words. */
    td__log_write(TD_LOG_ERROR, TD_LOG_PART_BASE, "broken invariant: %s: %s (%s:%d)", cond, text,
                  file, line);
    abort();
}
