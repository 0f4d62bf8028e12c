/* terminal_text.c -- see terminal_text.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "terminal_text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* no-color.org: set and not empty means no colour. */
static bool has_colours(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && !(no && *no) && term && *term && strcmp(term, "dumb") != 0;
}

const char *td__colour_text(td__colour c)
{
    static const char *const TEXTS[] = {[TD_GOOD] = "\033[32m",
                                        [TD_WARN] = "\033[33m",
                                        [TD_BAD] = "\033[31m",
                                        [TD_DIM] = "\033[2m",
                                        [TD_PLAIN] = "\033[0m"};

    return has_colours() ? TEXTS[c] : "";
}

void td__print_wrapped(int indent, const char *fmt, ...)
{
    char text[2048], *at = text;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int room = TD_COLUMNS - indent; *at; room = TD_COLUMNS - indent) {
        size_t n = strlen(at);
        if (n > (size_t)room) {
            size_t k = (size_t)room;
            while (k > 0 && at[k] != ' ')
                k--;
            n = k ? k : (size_t)room;
        }
        printf("%*s%.*s\n", indent, "", (int)n, at);
        indent += at == text ? 2 : 0;
        at += n;
        while (*at == ' ')
            at++;
    }
}
