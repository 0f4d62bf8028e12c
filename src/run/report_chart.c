/* report_chart.c -- curves as inline SVG.
 *
 * A curve of many steps is cut in at most MOST_POINTS bins along x. A plain curve goes through the
 * bins' means; a smooth one is an exponential moving average (over about an eightieth of the run,
 * its start corrected as in Adam), over the faint band between the bins' least and greatest values.
 * The numbers that a curve is drawn from stand in data-x and data-y, where the page's script finds
 * them for the value under the pointer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/report_chart.h"

#include <math.h>
#include <stdio.h>

enum { MOST_POINTS = 240, WIDTH = 640, HEIGHT = 260, LEFT = 58, RIGHT = 14, TOP = 22, BOTTOM = 30 };
enum { MOST_TICKS = 12 };

typedef enum by { BY_STEP, BY_SECOND, BY_RATE } by;
static const struct {
    const char *axis, *one; /* the axis' title; what a value of it is called */
} BY[] = {{"step", "step"}, {"seconds", "second"}, {"learning rate", "rate"}};

typedef struct axis {
    double lo, hi; /* of the values; of their logarithms where log is set */
    bool log;
} axis;

typedef struct bin {
    double x, y, lo, hi; /* means of x and of the drawn value; extremes of the values */
} bin;

typedef struct curve {
    bin at[MOST_POINTS];
    int n;
} curve;

/* The i-th of n points falls into bin i * bins / n. */
static void cut(const td__series *s, curve *c)
{
    int finite = 0;
    double average = 0, weight = 0, keep;

    c->n = 0;
    for (int i = 0; i < s->n; i++)
        finite += isfinite(s->y[i]);
    int bins = finite < MOST_POINTS ? finite : MOST_POINTS;
    keep = 1 - 1 / fmax(1, (double)finite / 80);
    int seen = 0, in_bin = 0;
    for (int i = 0; i < s->n; i++) {
        if (!isfinite(s->y[i]))
            continue;
        int b = (int)((int64_t)seen++ * bins / finite);
        if (b == c->n) { /* the first of a new bin */
            c->at[c->n++] = (bin){.lo = s->y[i], .hi = s->y[i]};
            in_bin = 0;
        }
        average = keep * average + (1 - keep) * s->y[i];
        weight = keep * weight + (1 - keep);
        bin *p = &c->at[b];
        double drawn = s->smooth ? average / weight : s->y[i];
        in_bin++;
        p->x += (s->x[i] - p->x) / in_bin;
        p->y += (drawn - p->y) / in_bin;
        p->lo = fmin(p->lo, s->y[i]);
        p->hi = fmax(p->hi, s->y[i]);
    }
}

static double scale(const axis *a, double v)
{
    return a->log ? log10(v) : v;
}

static double place_x(const axis *a, double v)
{
    double t = a->hi > a->lo ? (scale(a, v) - a->lo) / (a->hi - a->lo) : 0.5;
    return LEFT + t * (WIDTH - LEFT - RIGHT);
}

static double place_y(const axis *a, double v)
{
    double t = a->hi > a->lo ? (scale(a, v) - a->lo) / (a->hi - a->lo) : 0.5;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return HEIGHT - BOTTOM - t * (HEIGHT - TOP - BOTTOM);
}

static void span_y(const curve *c, const td__series *s, int n, axis *y)
{
    double lo = (double)INFINITY, hi = -(double)INFINITY;
    bool wide = false;

    for (int k = 0; k < n; k++) {
        wide = wide || s[k].wide;
        for (int i = 0; i < c[k].n; i++) {
            bool band = s[k].smooth && !s[k].bare;
            lo = fmin(lo, band ? c[k].at[i].lo : c[k].at[i].y);
            hi = fmax(hi, band ? c[k].at[i].hi : c[k].at[i].y);
        }
    }
    y->log = wide && lo > 0 && hi / lo > 30;
    if (y->log) {
        lo = log10(lo);
        hi = log10(hi);
    }
    double room = hi > lo ? 0.04 * (hi - lo) : fabs(hi) > 0 ? 0.1 * fabs(hi) : 1;
    y->lo = lo >= 0 && lo - room < 0 && !y->log ? 0 : lo - room;
    y->hi = hi + room;
}

static void span_x(const curve *c, int n, by what, axis *x)
{
    x->lo = INFINITY;
    x->hi = -INFINITY;
    x->log = what == BY_RATE;
    for (int k = 0; k < n; k++)
        if (c[k].n) {
            x->lo = fmin(x->lo, c[k].at[0].x);
            x->hi = fmax(x->hi, c[k].at[c[k].n - 1].x);
        }
    if (x->log) {
        x->lo = log10(x->lo);
        x->hi = log10(x->hi);
    }
}

/* Round values within the axis: 1, 2 or 5 times a power of ten apart, or decades. */
static int ticks(const axis *a, int want, double *at)
{
    int n = 0;

    if (a->log && a->hi - a->lo >= 1) {
        double step = ceil((a->hi - a->lo) / want);
        for (double e = ceil(a->lo / step) * step; e <= a->hi && n < MOST_TICKS; e += step)
            at[n++] = pow(10, e);
        if (n >= 2)
            return n;
        n = 0;
    }
    double lo = a->log ? pow(10, a->lo) : a->lo, hi = a->log ? pow(10, a->hi) : a->hi;
    double raw = (hi - lo) / want, power = pow(10, floor(log10(raw)));
    double f = raw / power, step = power * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
    for (double v = ceil(lo / step) * step; v <= hi && n < MOST_TICKS; v += step)
        at[n++] = fabs(v) < step * 1e-9 ? 0 : v;
    return n;
}

char *td__chart_tick(double v, char buf[TD__CHART_TICK])
{
    if (fabs(v) >= 1e4 && fabs(v) < 1e9)
        snprintf(buf, TD__CHART_TICK, fabs(v) >= 1e6 ? "%.4gM" : "%.4gk",
                 v / (fabs(v) >= 1e6 ? 1e6 : 1e3));
    else
        snprintf(buf, TD__CHART_TICK, "%.4g", v);
    return buf;
}

static void print_axes(td__text *t, const axis *x, const axis *y, const char *y_title, by what)
{
    double at[MOST_TICKS];
    char text[TD__CHART_TICK];

    int n = ticks(y, 5, at);
    for (int i = 0; i < n; i++) {
        double p = place_y(y, at[i]);
        td__text_printf(t,
                        "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"ty\" x=\"%d\" "
                        "y=\"%.1f\">%s</text>\n",
                        LEFT, p, WIDTH - RIGHT, LEFT - 8, p + 4, td__chart_tick(at[i], text));
    }
    n = ticks(x, 6, at);
    for (int i = 0; i < n; i++) {
        if (what == BY_STEP && at[i] != floor(at[i]))
            continue; /* there are no half steps */
        td__text_printf(t, "<text class=\"tx\" x=\"%.1f\" y=\"%d\">%s</text>\n", place_x(x, at[i]),
                        HEIGHT - BOTTOM + 18, td__chart_tick(at[i], text));
    }
    td__text_printf(t, "<path class=\"axis\" d=\"M%d %dH%d\"/>\n", LEFT, HEIGHT - BOTTOM,
                    WIDTH - RIGHT);
    td__text_printf(t, "<text class=\"ty\" x=\"%d\" y=\"%d\">%s</text>\n", WIDTH - RIGHT,
                    HEIGHT - BOTTOM - 6, BY[what].axis);
    td__text_printf(t, "<text x=\"%d\" y=\"%d\">", LEFT, TOP - 10); /* above all curves */
    td__text_html(t, y_title);
    td__text_add(t, "</text>\n");
}

static void print_band(td__text *t, const curve *c, const axis *x, const axis *y, int colour)
{
    td__text_printf(t, "<path class=\"band c%d\" d=\"", colour);
    for (int i = 0; i < c->n; i++)
        td__text_printf(t, "%c%.1f %.1f", i ? 'L' : 'M', place_x(x, c->at[i].x),
                        place_y(y, c->at[i].hi));
    for (int i = c->n - 1; i >= 0; i--)
        td__text_printf(t, "L%.1f %.1f", place_x(x, c->at[i].x), place_y(y, c->at[i].lo));
    td__text_add(t, "Z\"/>\n");
}

static void print_numbers(td__text *t, const char *name, const curve *c, bool y, bool whole)
{
    td__text_printf(t, " data-%s=\"[", name);
    for (int i = 0; i < c->n; i++) {
        td__text_add(t, i ? "," : "");
        double v = y ? c->at[i].y : c->at[i].x;
        td__text_json_number(t, whole ? round(v) : v, whole ? 12 : 5);
    }
    td__text_add(t, "]\"");
}

static void print_curve(td__text *t, const td__series *s, const curve *c, const axis *x,
                        const axis *y, bool whole)
{
    int colour = s->colour % TD__CHART_COLOURS;

    if (s->smooth && !s->bare && c->n > 2)
        print_band(t, c, x, y, colour);
    td__text_printf(t, "<path class=\"line c%d%s\" data-name=\"", colour,
                    s->colour < TD__CHART_COLOURS ? "" : " dash");
    td__text_html(t, s->name);
    td__text_add(t, "\"");
    print_numbers(t, "x", c, false, whole);
    print_numbers(t, "y", c, true, false);
    td__text_add(t, " d=\"");
    for (int i = 0; i < c->n; i++)
        td__text_printf(t, "%c%.1f %.1f", i ? 'L' : 'M', place_x(x, c->at[i].x),
                        place_y(y, c->at[i].y));
    td__text_add(t, "\"/>\n");
    if (s->dots && c->n <= 60)
        for (int i = 0; i < c->n; i++)
            td__text_printf(t, "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"/>\n",
                            colour, place_x(x, c->at[i].x), place_y(y, c->at[i].y));
}

static void print_chart(td__text *t, const char *title, const char *unit, by what,
                        const td__series *s, int n)
{
    curve c[TD__CHART_SERIES];
    axis x, y;
    int drawn = 0;

    n = n < TD__CHART_SERIES ? n : TD__CHART_SERIES;
    for (int k = 0; k < n; k++) {
        cut(&s[k], &c[k]);
        if (c[k].n < (s[k].dots ? 1 : 2))
            c[k].n = 0;
        drawn += c[k].n > 0;
    }
    if (!drawn)
        return;
    span_x(c, n, what, &x);
    span_y(c, s, n, &y);
    td__text_add(t, "<figure class=\"chart\"><figcaption><b>");
    td__text_html(t, title);
    td__text_add(t, "</b>");
    if (unit && *unit) {
        td__text_add(t, " <span class=\"unit\">");
        td__text_html(t, unit);
        td__text_add(t, "</span>");
    }
    if (y.log)
        td__text_add(t, " <span class=\"unit\">log scale</span>");
    td__text_add(t, "<span class=\"legend\">");
    for (int k = 0; k < n && drawn > 1; k++)
        if (c[k].n) {
            td__text_printf(t, "<span><i class=\"key c%d%s\"></i>", s[k].colour % TD__CHART_COLOURS,
                            s[k].colour < TD__CHART_COLOURS ? "" : " dash");
            td__text_html(t, s[k].name);
            td__text_add(t, "</span>");
        }
    td__text_printf(t,
                    "</span></figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" "
                    "data-left=\"%d\" data-right=\"%d\" data-lo=\"%.9g\" data-hi=\"%.9g\" "
                    "data-by=\"%s\" aria-label=\"",
                    WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, x.lo, x.hi, BY[what].one);
    td__text_html(t, title);
    td__text_printf(t, " by %s\"%s>\n", BY[what].one, x.log ? " data-log=\"1\"" : "");
    print_axes(t, &x, &y, title, what);
    for (int k = 0; k < n; k++)
        if (c[k].n)
            print_curve(t, &s[k], &c[k], &x, &y, what == BY_STEP);
    td__text_printf(t,
                    "<path class=\"cursor\" d=\"M0 %dV%d\"/>\n</svg><output></output></figure>\n",
                    TOP, HEIGHT - BOTTOM);
}

void td__chart(td__text *t, const char *title, const char *unit, const td__series *s, int n)
{
    print_chart(t, title, unit, BY_STEP, s, n);
}

void td__chart_time(td__text *t, const char *title, const char *unit, const td__series *s, int n)
{
    print_chart(t, title, unit, BY_SECOND, s, n);
}

void td__chart_rate(td__text *t, const char *title, const char *unit, const td__series *s, int n)
{
    print_chart(t, title, unit, BY_RATE, s, n);
}
