/* report_pipeline.c -- see pipeline_report.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/human.h"
#include "run/pipeline_report.h"
#include "run/report_html.h"

enum { DIGITS = 6, WIDTH = 960, LEFT = 64, ROW = 26, GAP = 4, LEAST_TEXT = 14 };

static const char *const PHASES[] = {"forward", "backward", "weight gradients"};
static const char *const COLOURS[] = {"#4c78a8", "#e08a3c", "#5aa469"};

void td__json_pipeline(td__text *t, uint64_t step, const td__pipeline_report *r)
{
    td__text_printf(t, "{\"kind\": \"pipeline\", \"step\": %" PRIu64 ", \"schedule\": \"%s\"", step,
                    r->schedule);
    td__text_member_int(t, "stages", r->stages);
    td__text_member_int(t, "replicas", r->replicas);
    td__text_member_int(t, "chunks", r->chunks);
    td__text_member_int(t, "micro_batches", r->micro_batches);
    td__text_member_number(t, "idle", r->measured, DIGITS);
    td__text_member_number(t, "idle_expected", r->expected, DIGITS);
    td__text_member_number(t, "idle_even", r->even, DIGITS);
    td__text_add(t, ", \"idle_by_stage\": [");
    for (int s = 0; s < r->stages; s++) {
        td__text_add(t, s ? ", " : "");
        td__text_json_number(t, r->idle[s], DIGITS);
    }
    td__text_add(t, "], \"peak_by_stage\": [");
    for (int s = 0; s < r->stages; s++)
        td__text_printf(t, "%s%.0f", s ? ", " : "", r->peak[s]);
    td__text_add(t, "], \"runs\": ["); /* stage, chunk, phase, micro-batch, begin, end */
    for (int i = 0; i < r->n_spans; i++) {
        const td__pipeline_span *s = &r->span[i];
        td__text_printf(t, "%s[%d, %d, %d, %d, %.6f, %.6f]", i ? ", " : "", s->stage, s->chunk,
                        s->phase, s->micro_batch, s->begin, s->end);
    }
    td__text_add(t, "]}\n");
}

/* ---- The page -------------------------------------------------------------------------------- */

static void print_card(td__text *t, double share, const char *label)
{
    char value[32];
    snprintf(value, sizeof value, "%.1f %%", 100 * share);
    td__html_card(t, value, label);
}

static void print_run(td__text *t, const td__pipeline_span *s, double all, td__unit unit)
{
    double scale = (WIDTH - LEFT) / all, x = LEFT + s->begin * scale;
    double w = (s->end - s->begin) * scale, y = s->stage * (double)(ROW + GAP);
    char took[TD__HUMAN];
    td__text_printf(t,
                    "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"%s\" "
                    "stroke=\"#fff\" stroke-width=\"0.4\"><title>stage %d, chunk %d: %s of "
                    "micro-batch %d, %s</title></rect>",
                    x, y, w, ROW, COLOURS[s->phase], s->stage, s->chunk, PHASES[s->phase],
                    s->micro_batch, td__unit_text(unit, s->end - s->begin, took));
    if (w > LEAST_TEXT)
        td__text_printf(t,
                        "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\" fill=\"#fff\" "
                        "font-size=\"11\">%d</text>\n",
                        x + w / 2, y + ROW - 9, s->micro_batch);
}

static void print_diagram(td__text *t, const td__pipeline_report *r)
{
    double all = 0, longest = 0;
    for (int i = 0; i < r->n_spans; i++) {
        all = r->span[i].end > all ? r->span[i].end : all;
        longest = fmax(longest, r->span[i].end - r->span[i].begin);
    }
    if (!(all > 0))
        return;
    td__unit unit = td__unit_seconds(longest);
    td__text_printf(t,
                    "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"when stages ran which "
                    "micro-batch\">\n",
                    WIDTH, r->stages * (ROW + GAP));
    for (int s = 0; s < r->stages; s++)
        td__text_printf(t,
                        "<text x=\"0\" y=\"%d\" font-size=\"12\" fill=\"currentColor\">stage %d"
                        "</text><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                        "fill=\"currentColor\" fill-opacity=\"0.07\"/>\n",
                        s * (ROW + GAP) + ROW - 8, s, LEFT, s * (ROW + GAP), WIDTH - LEFT, ROW);
    for (int i = 0; i < r->n_spans; i++)
        print_run(t, &r->span[i], all, unit);
    td__text_add(t, "</svg>\n<p class=\"sub\">");
    for (int k = 0; k < 3; k++)
        td__text_printf(t, "<span style=\"color:%s\">&#9632;</span> %s &nbsp; ", COLOURS[k],
                        PHASES[k]);
    td__text_add(t, "numbers are micro-batches; the last batch of the run</p>\n");
}

void td__html_pipeline(td__text *t, const td__pipeline_report *r)
{
    td__text_printf(t, "<h2>Pipeline</h2>\n<p class=\"sub\">%s, %d stages, %d chunks, %d ",
                    r->schedule, r->stages, r->chunks, r->micro_batches);
    td__text_printf(t, "micro-batches, %d replica%s</p>\n<div class=\"cards\">", r->replicas,
                    r->replicas == 1 ? "" : "s");
    print_card(t, r->measured, "idle, measured");
    print_card(t, r->expected, "idle, expected of the chunks' times");
    print_card(t, r->even, "idle, if all phases took the same");
    td__text_add(t, "</div>\n<div class=\"panel\">");
    print_diagram(t, r);
    td__text_add(t, "<table><tr><th>stage</th><th class=\"n\">peak memory</th>"
                    "<th class=\"n\">idle</th><th></th></tr>\n");
    double most = 0;
    for (int s = 0; s < r->stages; s++)
        most = r->peak[s] > most ? r->peak[s] : most;
    td__unit unit = td__unit_bytes(most);
    for (int s = 0; s < r->stages; s++) {
        char text[TD__HUMAN];
        td__text_printf(t, "<tr><td>%d</td>", s);
        td__html_cell(t, "n", r->peak[s] > 0 ? td__unit_text(unit, r->peak[s], text) : "");
        snprintf(text, sizeof text, "%.1f %%", 100 * r->idle[s]);
        td__html_cell(t, "n", text);
        td__html_bar(t, r->idle[s]);
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "</table></div>\n");
}
