/* report_html.c -- see report_html.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/report_html.h"

#include "base/file.h"
#include "run/report_style.h"

void td__html_begin(td__text *t, const char *title)
{
    td__text_add(t, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                    "<title>");
    td__text_html(t, title);
    td__text_add(t, " &middot; tandem</title>\n<style>\n");
    td__text_add(t, REPORT_CSS);
    td__text_add(t, REPORT_CSS_TABLES);
    td__text_add(t, "</style></head><body><main>\n");
}

void td__html_end(td__text *t, const char *footer)
{
    if (footer) {
        td__text_add(t, "<footer>");
        td__text_html(t, footer);
        td__text_add(t, "</footer>\n");
    }
    td__text_add(t, "</main><script>\n");
    td__text_add(t, REPORT_SCRIPT);
    td__text_add(t, "</script></body></html>\n");
}

static td_status write_page(const td__text *t, const char *path, bool passing)
{
    td__file_out f;
    td_status st = td__text_status(t);

    if (!st)
        st = td__file_out_open(&f, path);
    if (st)
        return st;
    f.passing = passing;
    td__file_out_write(&f, t->data, t->used);
    return td__file_out_commit(&f);
}

td_status td__html_write(const td__text *t, const char *path)
{
    return write_page(t, path, false);
}

td_status td__html_write_passing(const td__text *t, const char *path)
{
    return write_page(t, path, true);
}

void td__html_cell(td__text *t, const char *class, const char *text)
{
    td__text_printf(t, "<td%s%s%s>", class ? " class=\"" : "", class ? class : "",
                    class ? "\"" : "");
    td__text_html(t, text);
    td__text_add(t, "</td>");
}

void td__html_bar(td__text *t, double part)
{
    td__text_printf(t, "<td class=\"bar\"><i style=\"width:%.1f%%\"></i></td>",
                    part > 0 ? 100 * (part < 1 ? part : 1) : 0);
}

void td__html_head(td__text *t, const char *const *names)
{
    td__text_add(t, "<tr>");
    for (; *names; names++) {
        bool number = **names == '#';
        td__text_add(t, number ? "<th class=\"n\">" : "<th>");
        td__text_html(t, *names + number);
        td__text_add(t, "</th>");
    }
    td__text_add(t, "</tr>\n");
}

void td__html_card(td__text *t, const char *value, const char *label)
{
    td__text_add(t, "<div class=\"card\"><b>");
    td__text_html(t, value);
    td__text_add(t, "</b><span>");
    td__text_html(t, label);
    td__text_add(t, "</span></div>\n");
}
