/* bench_draw.c -- measurements as an SVG picture: small panels with logarithmic axes.
 *
 * One line of panels per collective: for every number of ranks the time of a call and its
 * bandwidth, over bytes, and a legend at the end. Colours stand for algorithms, dashes for the way
 * the bytes go; other programs are drawn in greys. The band around a line is the tenth to
 * the ninetieth percentile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "bench_rows.h"

enum {
    PANEL_W = 400,
    PANEL_H = 300,
    PAD_L = 62, /* of a panel, for its axis */
    PAD_R = 14,
    PAD_T = 34,
    PAD_B = 46,
    HEAD = 64,  /* above all */
    TITLE = 30, /* above a line of panels */
    LEGEND_W = 280,
    MARGIN = 20,
    MOST_RANKS_SHOWN = 4,
    MOST_BANDS = 6, /* series in a panel that still has bands */
};

static const char *const COLOR[] = {"#0b6bcb", "#d1495b", "#2a9d5c", "#8a4fbf", "#e07a1f",
                                    "#0f8b8d", "#b0306a", "#7a6a00", "#4d5bd6", "#5f8f1f"};
static const char *const PEER_COLOR[] = {"#222222", "#8a8a8a", "#555555"};

typedef struct axis {
    double lo, hi; /* powers of ten or two */
    bool binary;
} axis;

typedef struct panel {
    FILE *to;
    const bench_rows *rows;
    const bench_row *head; /* collective and ranks */
    bool bandwidth;
    double x, y; /* upper left corner of the plot area */
    double w, h;
    axis ax, ay;
} panel;

static bool is_peer(const bench_row *r)
{
    return strncmp(r->who, "tandem", 6) != 0;
}

static bool same_algorithm(const bench_row *a, const bench_row *b)
{
    return is_peer(a) == is_peer(b) &&
           (is_peer(a) ? strcmp(a->who, b->who) : strcmp(a->algorithm, b->algorithm)) == 0;
}

static const char *color_of(const bench_rows *rows, const bench_row *r)
{
    int n = 0;
    for (int i = 0; i < rows->count; i++) {
        if (same_algorithm(&rows->row[i], r))
            break;
        n += is_peer(&rows->row[i]) == is_peer(r) && bench_is_first(rows, i, same_algorithm);
    }
    return is_peer(r) ? PEER_COLOR[n % TD_LEN(PEER_COLOR)] : COLOR[n % TD_LEN(COLOR)];
}

static const char *dash_of(const bench_row *r)
{
    if (strstr(r->who, "private"))
        return "7 3";
    if (strstr(r->who, "tcp"))
        return "2 3";
    return strstr(r->who, "threads") ? "10 3 2 3" : "none";
}

static double value(const panel *p, const bench_row *r, double us)
{
    return p->bandwidth ? (double)r->nbytes / us * 1e-3 : us;
}

static double scale(const axis *a, double v)
{
    return (log(v) - log(a->lo)) / (log(a->hi) - log(a->lo));
}

static double at_x(const panel *p, double v)
{
    return p->x + p->w * scale(&p->ax, v);
}

static double at_y(const panel *p, double v)
{
    return p->y + p->h * (1 - scale(&p->ay, v));
}

static void fit(panel *p)
{
    double x0 = INFINITY, x1 = 0, y0 = INFINITY, y1 = 0;
    for (int i = 0; i < p->rows->count; i++) {
        const bench_row *r = &p->rows->row[i];
        if (!bench_same_collective(r, p->head))
            continue; /* all numbers of ranks have the same axes */
        double v = value(p, r, r->us);
        x0 = fmin(x0, (double)r->nbytes);
        x1 = fmax(x1, (double)r->nbytes);
        y0 = fmin(y0, v);
        y1 = fmax(y1, v);
    }
    p->ax = (axis){.lo = fmax(x0, 1) / 1.5, .hi = fmax(x1, 2) * 1.5, .binary = true};
    p->ay = (axis){.lo = pow(10, floor(log10(y0 * 0.999))), .hi = pow(10, ceil(log10(y1 * 1.001)))};
}

static void text(FILE *to, double x, double y, const char *anchor, const char *class,
                 const char *what)
{
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", x, y,
            anchor, class, what);
}

/* A power of ten in its unit: microseconds up to seconds, GB/s down to KB/s. */
static void axis_label(bool bandwidth, double v, char *label, size_t nbytes)
{
    static const char *const TIME[] = {"us", "ms", "s"}, *const RATE[] = {"KB/s", "MB/s", "GB/s"};
    int unit = 0;
    v = bandwidth ? v * 1e6 : v;
    for (; unit < 2 && v > 999; unit++)
        v *= 1e-3;
    snprintf(label, nbytes, "%g %s", v, bandwidth ? RATE[unit] : TIME[unit]);
}

static void draw_axes(const panel *p)
{
    char label[32];
    FILE *to = p->to;
    int decades = (int)lround(log10(p->ay.hi / p->ay.lo));
    for (int d = 0; d <= decades; d++) {
        double v = p->ay.lo * pow(10, d), y = at_y(p, v);
        fprintf(to, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>\n", p->x, y, p->w);
        axis_label(p->bandwidth, v, label, sizeof label);
        text(to, p->x - 6, y + 4, "end", "tick", label);
        for (int k = 2; k < 10 && d < decades; k++)
            fprintf(to, "<path class=\"fine\" d=\"M%.1f %.1fh%.1f\"/>\n", p->x, at_y(p, v * k),
                    p->w);
    }
    for (int power = 0; exp2(power) <= p->ax.hi; power += 2) {
        double v = exp2(power);
        if (v < p->ax.lo)
            continue;
        fprintf(to, "<path class=\"%s\" d=\"M%.1f %.1fv%.1f\"/>\n",
                power % 6 == 2 ? "grid" : "fine", at_x(p, v), p->y, p->h);
        if (power % 6 == 2) {
            char size[16];
            text(to, at_x(p, v), p->y + p->h + 17, "middle", "tick",
                 bench_size_text((size_t)v, size));
        }
    }
    fprintf(to, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
            p->x, p->y, p->w, p->h);
    snprintf(label, sizeof label, "%s, %d ranks", p->bandwidth ? "bandwidth" : "time",
             p->head->ranks);
    text(to, p->x, p->y - 9, "start", "panel", label);
    text(to, p->x + p->w / 2, p->y + p->h + 36, "middle", "tick", "bytes of the call");
}

static bool in_series(const panel *p, const bench_row *r, const bench_row *series)
{
    return bench_same_table(r, p->head) && bench_same_series(r, series);
}

static bool same_series_and_collective(const bench_row *a, const bench_row *b)
{
    return bench_same_series(a, b) && bench_same_collective(a, b);
}

static int legend_lines(const bench_rows *rows, const bench_row *head)
{
    int n = 0;
    for (int i = 0; i < rows->count; i++)
        n += bench_same_collective(&rows->row[i], head) &&
             bench_is_first(rows, i, same_series_and_collective);
    return n;
}

/* There and back: the tenth percentile from left to right, the ninetieth from right to left. */
static void draw_band(const panel *p, const bench_row *series, const char *color)
{
    int n = p->rows->count, points = 0;
    fputs("<path d=\"", p->to);
    for (int pass = 0; pass < 2; pass++) {
        for (int k = 0; k < n; k++) {
            const bench_row *r = &p->rows->row[pass ? n - 1 - k : k];
            if (!in_series(p, r, series))
                continue;
            double v = value(p, r, pass ? r->high : r->low);
            v = fmin(fmax(v, p->ay.lo), p->ay.hi);
            fprintf(p->to, "%c%.1f %.1f", points++ ? 'L' : 'M', at_x(p, (double)r->nbytes),
                    at_y(p, v));
        }
    }
    fprintf(p->to, "\" fill=\"%s\" opacity=\"0.12\"/>\n", color);
}

static void draw_series(const panel *p, const bench_row *series)
{
    const char *color = color_of(p->rows, series);
    int points = 0;
    if (legend_lines(p->rows, p->head) <= MOST_BANDS)
        draw_band(p, series, color);
    fprintf(p->to, "<path class=\"line\" stroke=\"%s\" stroke-dasharray=\"%s\" d=\"", color,
            dash_of(series));
    for (int i = 0; i < p->rows->count; i++) {
        const bench_row *r = &p->rows->row[i];
        if (in_series(p, r, series))
            fprintf(p->to, "%c%.1f %.1f", points++ ? 'L' : 'M', at_x(p, (double)r->nbytes),
                    at_y(p, value(p, r, r->us)));
    }
    fputs("\"/>\n", p->to);
    for (int i = 0; i < p->rows->count; i++) {
        const bench_row *r = &p->rows->row[i];
        if (in_series(p, r, series))
            fprintf(p->to,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\" fill=\"%s\"><title>%s %s: %.2f us"
                    "</title></circle>\n",
                    at_x(p, (double)r->nbytes), at_y(p, value(p, r, r->us)), color, r->who,
                    r->algorithm, r->us);
    }
}

static bool same_series_and_table(const bench_row *a, const bench_row *b)
{
    return bench_same_series(a, b) && bench_same_table(a, b);
}

static void draw_panel(panel *p)
{
    fit(p);
    draw_axes(p);
    for (int i = 0; i < p->rows->count; i++)
        if (bench_same_table(&p->rows->row[i], p->head) &&
            bench_is_first(p->rows, i, same_series_and_table))
            draw_series(p, &p->rows->row[i]);
}

static void draw_legend(FILE *to, const bench_rows *rows, const bench_row *head, double x, double y)
{
    for (int i = 0; i < rows->count; i++) {
        const bench_row *r = &rows->row[i];
        if (!bench_same_collective(r, head) || !bench_is_first(rows, i, same_series_and_collective))
            continue;
        char label[2 * BENCH_NAME + 4];
        bool plain = is_peer(r) || strcmp(r->algorithm, "shm") == 0;
        snprintf(label, sizeof label, "%s%s%s", r->who, plain ? "" : ": ",
                 plain ? "" : r->algorithm);
        fprintf(
            to,
            "<path class=\"line\" stroke=\"%s\" stroke-dasharray=\"%s\" d=\"M%.1f %.1fh34\"/>\n",
            color_of(rows, r), dash_of(r), x, y);
        text(to, x + 42, y + 4, "start", "entry", label);
        y += 17;
    }
}

static int count_first(const bench_rows *rows, bench_same *same)
{
    int n = 0;
    for (int i = 0; i < rows->count; i++)
        n += bench_is_first(rows, i, same);
    return n;
}

static bool same_ranks(const bench_row *a, const bench_row *b)
{
    return a->ranks == b->ranks;
}

static double band_height(const bench_rows *rows, const bench_row *head)
{
    double legend = PAD_T + 17.0 * legend_lines(rows, head);
    return TITLE + fmax(PANEL_H, legend);
}

static void draw_band_of_panels(FILE *to, const bench_rows *rows, const bench_row *head,
                                int columns, double y)
{
    text(to, MARGIN, y + 20, "start", "band", head->collective);
    int column = 0;
    for (int bandwidth = 0; bandwidth < 2; bandwidth++) {
        for (int i = 0; i < rows->count; i++) {
            if (!bench_same_collective(&rows->row[i], head) ||
                !bench_is_first(rows, i, bench_same_table) || column == columns)
                continue;
            panel p = {.to = to,
                       .rows = rows,
                       .head = &rows->row[i],
                       .bandwidth = bandwidth,
                       .x = MARGIN + column * PANEL_W + PAD_L,
                       .y = y + TITLE + PAD_T,
                       .w = PANEL_W - PAD_L - PAD_R,
                       .h = PANEL_H - PAD_T - PAD_B};
            draw_panel(&p);
            column++;
        }
    }
    draw_legend(to, rows, head, MARGIN + columns * PANEL_W + 16, y + TITLE + PAD_T + 6);
}

bool bench_rows_draw(const bench_rows *rows, const char *title, const char *path)
{
    int ranks = count_first(rows, same_ranks);
    int columns = 2 * (ranks < MOST_RANKS_SHOWN ? ranks : MOST_RANKS_SHOWN);
    double width = 2 * MARGIN + columns * PANEL_W + LEGEND_W, height = HEAD + MARGIN;
    FILE *to = fopen(path, "we");
    if (!to)
        return false;
    for (int i = 0; i < rows->count; i++)
        if (bench_is_first(rows, i, bench_same_collective))
            height += band_height(rows, &rows->row[i]);
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n"
            "<style>text{fill:#222}.tick{font-size:11px;fill:#555}.panel{font-size:13px}"
            ".entry{font-size:12px}.band{font-size:17px;font-weight:bold}"
            ".title{font-size:22px;font-weight:bold}.sub{font-size:13px;fill:#555}"
            ".grid{stroke:#d0d4da;stroke-width:1;fill:none}"
            ".fine{stroke:#eef0f3;stroke-width:1;fill:none}"
            ".frame{fill:none;stroke:#8a9099}"
            ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            width, height, width, height);
    text(to, MARGIN, MARGIN + 16, "start", "title", title);
    text(to, MARGIN, MARGIN + 36, "start", "sub",
         "medians of one call, from the last rank's start to the last rank's end; bands: 10th to "
         "90th percentile");
    double y = HEAD;
    for (int i = 0; i < rows->count; i++) {
        if (!bench_is_first(rows, i, bench_same_collective))
            continue;
        draw_band_of_panels(to, rows, &rows->row[i], columns, y);
        y += band_height(rows, &rows->row[i]);
    }
    fputs("</svg>\n", to);
    bool failed = ferror(to) != 0;
    return fclose(to) == 0 && !failed;
}
