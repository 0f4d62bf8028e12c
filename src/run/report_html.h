/* report_html.h -- the parts that our pages (report.html, compare.html) are made of. Texts are
 * escaped here; pages hold no links to elsewhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_REPORT_HTML_H
#define TD_RUN_REPORT_HTML_H

#include "base/text.h"

/* All before and all after what a page has to say; footer: one line, NULL for none. */
void td__html_begin(td__text *t, const char *title);
void td__html_end(td__text *t, const char *footer);
/* The page as a file. */
TD_NODISCARD td_status td__html_write(const td__text *t, const char *path);
/* The same for a page that is about to be written again: not fsynced. */
TD_NODISCARD td_status td__html_write_passing(const td__text *t, const char *path);

/* A cell of a table; class NULL: none, "n": a number. */
void td__html_cell(td__text *t, const char *class, const char *text);
void td__html_bar(td__text *t, double part);               /* a cell with a bar, 0..1 */
void td__html_head(td__text *t, const char *const *names); /* a row of <th>; ends with NULL; one
                                                              that begins with '#': of numbers */
/* A number with what it is below it, in <div class="cards">. */
void td__html_card(td__text *t, const char *value, const char *label);

#endif
