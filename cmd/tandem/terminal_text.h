/* terminal_text.h -- how what is said looks: colours on terminals, lines that fit. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_TERMINAL_TEXT_H
#define TD_CMD_TERMINAL_TEXT_H

enum { TD_COLUMNS = 80 };

typedef enum td__colour { TD_GOOD, TD_WARN, TD_BAD, TD_DIM, TD_PLAIN } td__colour;

/* The sequence that begins a colour, or ends it (TD_PLAIN); "" where standard output is no terminal
 * that knows colours, or the user wants none (NO_COLOR). */
const char *td__colour_text(td__colour c);

/* Lines of at most TD_COLUMNS, broken at spaces, each after `indent` spaces, those after the first
 * after two more. */
void td__print_wrapped(int indent, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
