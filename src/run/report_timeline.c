/* report_timeline.c -- see report_timeline.h.
 *
 * ranks.jsonl has a line per event: {"kind": "start" | "lost" | "ranks", "time": unix time,
 * "ranks": how many there are from then on, "text": what happened}. A launcher begins with
 * "start"; the page shows what came since the last one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/report_timeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/human.h"
#include "run/report_html.h"
#include "run/run_dir.h"

enum { MOST_EVENTS = 4096, MOST_ROWS = 40, TEXT = 400 };
enum { WIDTH = 1100, HEIGHT = 190, LEFT = 46, RIGHT = 14, TOP = 26, BOTTOM = 36 };

typedef struct event {
    double at;         /* seconds since the start */
    double wait;       /* of a loss: until the others went on; NaN: it is not known */
    int ranks;         /* from then on; -1: not told */
    bool lost, hidden; /* hidden: the first membership, which is no news */
    char text[TEXT];
} event;

typedef struct timeline {
    event *all; /* (MOST_EVENTS) */
    int n;
    double start;
} timeline;

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void take(timeline *l, const json_t *o)
{
    const char *kind = json_string_value(json_object_get(o, "kind"));
    const char *text = json_string_value(json_object_get(o, "text"));
    double time = number(o, "time"), ranks = number(o, "ranks");

    if (!kind || !isfinite(time))
        return;
    if (strcmp(kind, "start") == 0) {
        l->n = 0;
        l->start = time;
        return;
    }
    if (l->n == MOST_EVENTS || !text)
        return;
    event *e = &l->all[l->n];
    *e = (event){.at = fmax(0, time - l->start),
                 .wait = NAN,
                 .lost = strcmp(kind, "lost") == 0,
                 .hidden = l->n == 0,
                 .ranks = ranks >= 0 && ranks < 1e6 ? (int)ranks : -1};
    snprintf(e->text, sizeof e->text, "%s", text);
    char *why = strstr(e->text, "): rank "); /* which the loss before it has said */
    if (why && !e->lost)
        why[1] = 0;
    l->n++;
}

/* A loss is over when the first step begins that ends after it. */
static void find_waits(timeline *l, const td__report_data *d)
{
    for (int i = 0, k = 0; i < l->n; i++) {
        double at = l->start + l->all[i].at;
        while (k < d->time.n && !(d->time.v[k] > at))
            k++;
        if (l->all[i].lost && k < d->time.n)
            l->all[i].wait = fmax(0, d->time.v[k] - d->seconds.v[k] - at);
    }
}

static td_status read_events(const char *dir, timeline *l)
{
    char path[TD__PATH];
    td__file_map m;

    TD_TRY(td__run_dir_path(dir, "ranks.jsonl", path));
    FILE *f = fopen(path, "re");
    if (!f)
        return TD_OK; /* ranks that no launcher of ours has started */
    fclose(f);
    TD_TRY(td__file_map_open(&m, path));
    l->all = td__calloc(MOST_EVENTS, sizeof *l->all);
    for (size_t at = 0; at < m.nbytes && l->all;) {
        const char *line = (const char *)m.data + at;
        const char *end = memchr(line, '\n', m.nbytes - at);
        size_t len = end ? (size_t)(end - line) : m.nbytes - at;
        json_t *o = json_loadb(line, len, 0, NULL);
        take(l, o);
        json_decref(o);
        at += len + 1;
    }
    td__file_map_close(&m);
    return l->all ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the events of ranks");
}

static double place_x(double at, double all)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (all > 0 ? at / all : 0);
}

static double place_y(double ranks, double most)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ranks / most;
}

static void print_axes(td__text *t, double all, int most)
{
    char value[TD__HUMAN];
    int every = most > 5 ? (most + 4) / 5 : 1;
    td__unit unit = td__unit_seconds(all);

    for (int k = 0; k <= most; k += every)
        td__text_printf(t,
                        "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"ty\" x=\"%d\" "
                        "y=\"%.1f\">%d</text>\n",
                        LEFT, place_y(k, most), WIDTH - RIGHT, LEFT - 8, place_y(k, most) + 4, k);
    for (int i = 0; i <= 5; i++)
        td__text_printf(t, "<text class=\"%s\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                        i == 5 ? "ty" : "tx", place_x(i * all / 5, all), HEIGHT - BOTTOM + 16,
                        i ? td__unit_text(unit, i * all / 5, value) : "0");
    td__text_printf(t,
                    "<text x=\"%d\" y=\"%d\">ranks</text><text class=\"ty\" x=\"%d\" y=\"%d\">"
                    "time since the start</text>\n",
                    LEFT - 30, TOP - 12, WIDTH - RIGHT, HEIGHT - 4);
}

static void print_curve(td__text *t, const timeline *l, double all, int most)
{
    int first = 0;

    while (first < l->n - 1 && l->all[first].ranks < 0)
        first++;
    td__text_add(t, "<path class=\"line c0\" d=\"");
    for (int i = 0; i < l->n; i++)
        if (l->all[i].ranks >= 0) {
            double x = place_x(l->all[i].at, all), y = place_y(l->all[i].ranks, most);
            if (i == first)
                td__text_printf(t, "M%.1f %.1f", x, y);
            else
                td__text_printf(t, "H%.1fV%.1f", x, y);
        }
    td__text_printf(t, "H%d\"/>\n", WIDTH - RIGHT);
}

static void print_chart(td__text *t, const timeline *l)
{
    double all = l->all[l->n - 1].at * 1.04 + 0.1;
    int most = 1;

    for (int i = 0; i < l->n; i++)
        most = l->all[i].ranks > most ? l->all[i].ranks : most;
    td__text_printf(t,
                    "<figure class=\"panel timeline\"><figcaption><b>Ranks over time</b><span "
                    "class=\"legend\"><span><i class=\"key c4\"></i>lost</span><span><i "
                    "class=\"key c2\"></i>joined or left</span></span></figcaption>\n<div "
                    "class=\"wide\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                    "aria-label=\"Ranks over time\">\n",
                    WIDTH, HEIGHT);
    print_axes(t, all, most);
    for (int i = 0; i < l->n; i++)
        if (l->all[i].lost && l->all[i].wait > 0)
            td__text_printf(t,
                            "<rect class=\"band c4\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" "
                            "height=\"%d\"/>\n",
                            place_x(l->all[i].at, all), TOP,
                            fmax(1, place_x(l->all[i].wait, all) - LEFT), HEIGHT - TOP - BOTTOM);
    print_curve(t, l, all, most);
    for (int i = 0; i < l->n; i++)
        if (!l->all[i].hidden) {
            td__text_printf(t, "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>",
                            l->all[i].lost ? 4 : 2, place_x(l->all[i].at, all),
                            l->all[i].lost ? TOP : place_y(l->all[i].ranks, most));
            td__text_html(t, l->all[i].text);
            td__text_add(t, "</title></circle>\n");
        }
    td__text_add(t, "</svg></div></figure>\n");
}

static void print_table(td__text *t, const timeline *l)
{
    static const char *const NAMES[] = {"#after", "what happened", "#no step for", NULL};
    int shown = 0, first = l->n;
    char value[TD__HUMAN];
    double wait = 0;

    while (first > 0 && shown < MOST_ROWS)
        shown += !l->all[--first].hidden;
    for (int i = first; i < l->n; i++)
        wait = l->all[i].hidden ? wait : fmax(wait, l->all[i].wait);
    td__unit after = td__unit_seconds(l->all[l->n - 1].at), still = td__unit_seconds(wait);
    td__text_add(t, "<div class=\"panel\"><table class=\"events\">\n");
    td__html_head(t, NAMES);
    for (int i = first; i < l->n; i++) {
        const event *e = &l->all[i];
        if (e->hidden)
            continue;
        td__text_add(t, e->lost ? "<tr class=\"lost\">" : "<tr>");
        td__html_cell(t, "n", td__unit_text(after, e->at, value));
        td__html_cell(t, "sub", e->text);
        td__html_cell(t, "n", e->wait >= 0 ? td__unit_text(still, e->wait, value) : "");
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "</table></div>\n");
}

td_status td__report_timeline(td__text *t, const char *dir, const td__report_data *d)
{
    timeline l = {0};
    td_status st = read_events(dir, &l);

    if (!st && l.n > 1) {
        int lost = 0;
        find_waits(&l, d);
        for (int i = 0; i < l.n; i++)
            lost += l.all[i].lost;
        td__text_printf(t, "<h2>Ranks that came and went: %d lost</h2>\n", lost);
        print_chart(t, &l);
        print_table(t, &l);
    }
    td__free(l.all);
    return st;
}
