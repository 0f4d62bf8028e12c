/* report_chart.h -- curves as inline SVG. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_REPORT_CHART_H
#define TD_RUN_REPORT_CHART_H

#include "base/text.h"

enum { TD__CHART_SERIES = 16, TD__CHART_COLOURS = 8, TD__CHART_TICK = 24 };

typedef struct td__series {
    const char *name;
    const double *x, *y; /* x rises; a y that is not finite is left out */
    int n;
    int colour;  /* 0, 1, ...; after TD__CHART_COLOURS they come again, dashed */
    bool smooth; /* drawn as a moving average over a faint band of the values themselves */
    bool bare;   /* without the band: where there are many */
    bool dots;   /* few points: each is marked */
    bool wide;   /* values of any size: the axis may become logarithmic */
} td__series;

/* A <figure> with title, legend, axes and the curves. Nothing at all if no series has two finite
 * points or one with dots. The y axis is logarithmic where there is a wide series and
 * all values together span more than a factor of thirty. */
void td__chart(td__text *t, const char *title, const char *unit, const td__series *s, int n);
/* The same over seconds in place of steps. At most TD__CHART_SERIES are drawn. */
void td__chart_time(td__text *t, const char *title, const char *unit, const td__series *s, int n);
/* The same over learning rates, on a logarithmic axis. */
void td__chart_rate(td__text *t, const char *title, const char *unit, const td__series *s, int n);
/* A number beside an axis: 12k, 3.5M. Returns buf. */
char *td__chart_tick(double v, char buf[TD__CHART_TICK]);

#endif
