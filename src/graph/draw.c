/* draw.c -- see draw.h.
 *
 * SVG: a node stands one row below the lowest of its inputs; within a row nodes are ordered by the
 * mean place of their inputs, so that chains stay straight, and the row is centred. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "graph/graph_impl.h"

enum { BOX_W = 250, GAP_X = 24, LINE_H = 15, PAD = 9, GAP_Y = 26, MARGIN = 20, TITLE = 34 };
enum { TEXT = 34 /* characters that fit a box */, SHAPE = 96 };

/* Leaves that are part of who uses them. */
static bool is_inside(const td_node *n)
{
    return n->op == TD_OP_PARAM || n->op == TD_OP_STATE || n->op == TD_OP_CONSTANT;
}

/* The node itself where it is an output beside the first. */
static const td_node *whole(const td_node *n)
{
    while (n->op == TD_OP_PART)
        n = n->in[0];
    return n;
}

static bool is_drawn(const td_node *n)
{
    return !is_inside(n) && n->op != TD_OP_PART;
}

static const char *shape_of(const td_node *n, char buf[SHAPE])
{
    return td_shape_text(&n->out[0].shape, buf, SHAPE);
}

typedef struct box {
    const td_node *node;
    int row, lines; /* lines of text */
    double want;    /* the mean place of its inputs */
    double x, y;    /* of its upper left corner */
} box;

static int by_place(const void *a, const void *b)
{
    const box *x = *(const box *const *)a, *y = *(const box *const *)b;
    return x->row != y->row     ? (x->row < y->row ? -1 : 1)
           : x->want != y->want ? (x->want < y->want ? -1 : 1)
                                : x->node->id - y->node->id;
}

static double box_height(const box *b)
{
    return 2 * PAD + LINE_H * b->lines;
}

/* all: by node id. Returns the number of rows. */
static int find_rows(const td_graph *g, box *all)
{
    int rows = 0;

    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        box *b = &all[i];
        *b = (box){.node = n, .lines = 2};
        if (!is_drawn(n))
            continue;
        for (int k = 0; k < n->n_in; k++) {
            const td_node *in = whole(n->in[k]);
            b->lines += n->in[k]->op == TD_OP_PARAM;
            if (!is_inside(in) && all[in->id].row >= b->row)
                b->row = all[in->id].row + 1;
        }
        rows = b->row >= rows ? b->row + 1 : rows;
    }
    return rows;
}

/* Row by row, as the place of a row's nodes follows from those above. order: (n) drawn boxes. */
static void place(const box *all, box **order, int n, int rows, double *width, double *height)
{
    double y = MARGIN + TITLE;
    int *first = td__calloc((size_t)rows + 2, sizeof *first), widest = 1;

    if (!first)
        return; /* all at the origin: the text is there */
    qsort(order, (size_t)n, sizeof(box *), by_place);
    for (int i = 0; i < n; i++)
        first[order[i]->row + 1]++;
    for (int r = 0; r < rows; r++) {
        widest = first[r + 1] > widest ? first[r + 1] : widest;
        first[r + 1] += first[r];
    }
    *width = 2 * MARGIN + widest * (BOX_W + GAP_X) - GAP_X;
    for (int r = 0; r < rows; r++) {
        int count = first[r + 1] - first[r];
        double high = 0, x = (*width - count * (BOX_W + GAP_X) + GAP_X) / 2;
        for (int i = first[r]; i < first[r + 1]; i++) {
            double sum = 0;
            int inputs = 0;
            for (int k = 0; k < order[i]->node->n_in; k++) {
                const td_node *in = whole(order[i]->node->in[k]);
                sum += is_inside(in) ? 0 : all[in->id].x;
                inputs += !is_inside(in);
            }
            order[i]->want = inputs ? sum / inputs : 0;
        }
        qsort(order + first[r], (size_t)count, sizeof(box *), by_place);
        for (int i = first[r]; i < first[r + 1]; i++, x += BOX_W + GAP_X) {
            order[i]->x = x;
            order[i]->y = y;
            high = box_height(order[i]) > high ? box_height(order[i]) : high;
        }
        y += high + GAP_Y;
    }
    *height = y + MARGIN - GAP_Y;
    td__free(first);
}

/* One line of a box; the end of a long one is what tells. */
static void svg_line(td__text *out, const box *b, int line, const char *class, const char *text)
{
    size_t n = strlen(text), skip = n > TEXT ? n - TEXT + 1 : 0;

    td__text_printf(out, "<text class=\"%s\" x=\"%.0f\" y=\"%.0f\">%s", class, b->x + BOX_W / 2.0,
                    b->y + PAD + LINE_H * (line + 0.75), skip ? "&#8230;" : "");
    td__text_html(out, text + skip);
    td__text_add(out, "</text>");
}

static void svg_box(td__text *out, const box *b)
{
    const td_node *n = b->node;
    char shape[SHAPE], line[320];
    int at = 2;

    td__text_printf(out,
                    "<g><title>%s</title><rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" "
                    "height=\"%.0f\" rx=\"7\"/>",
                    td__op(n->op)->name, b->x, b->y, BOX_W, box_height(b));
    svg_line(out, b, 0, "name", n->name);
    snprintf(line, sizeof line, "%s %s", td__op(n->op)->name, shape_of(n, shape));
    svg_line(out, b, 1, "op", line);
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k]->op == TD_OP_PARAM) {
            snprintf(line, sizeof line, "%.200s %s", n->in[k]->name, shape_of(n->in[k], shape));
            svg_line(out, b, at++, "param", line);
        }
    td__text_add(out, "</g>\n");
}

static void svg_edges(td__text *out, const box *all, const box *b)
{
    for (int k = 0; k < b->node->n_in; k++) {
        const td_node *in = whole(b->node->in[k]);
        const box *from = &all[in->id];
        if (is_inside(in))
            continue;
        double x0 = from->x + BOX_W / 2.0, y0 = from->y + box_height(from);
        double x1 = b->x + BOX_W / 2.0, bend = (b->y - y0) / 2;
        td__text_printf(out, "<path d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\"/>\n", x0, y0, x0,
                        y0 + bend, x1, b->y - bend, x1, b->y);
    }
}

td_status td__graph_svg(td__text *out, const td_graph *g, const char *title)
{
    static const char STYLE[] =
        "<style>svg{background:#fff;font:12px sans-serif}rect{fill:#eef3fd;stroke:#2f6fed}"
        "path{fill:none;stroke:#98a2b3;stroke-width:1.3}text{text-anchor:middle;fill:#1c2330}"
        ".name{font-weight:600}.op{fill:#475467}.param{fill:#b54708}"
        ".title{font-size:16px;font-weight:650;text-anchor:start}"
        "@media(prefers-color-scheme:dark){svg{background:#0f131a}rect{fill:#1b2434;"
        "stroke:#6ea0ff}path{stroke:#667085}text{fill:#e6e9ef}.op{fill:#a9b4c8}"
        ".param{fill:#ff9a4d}}</style>\n";
    double width = BOX_W, height = BOX_W;
    int n = 0;
    box *all = td__calloc((size_t)g->n_nodes + 1, sizeof *all);
    box **order = td__calloc((size_t)g->n_nodes + 1, sizeof *order);

    if (!all || !order) {
        td__free(all);
        td__free(order);
        return TD_FAIL(TD_ENOMEM, "no memory for a picture of %d nodes", g->n_nodes);
    }
    int rows = find_rows(g, all);
    for (int i = 0; i < g->n_nodes; i++)
        if (is_drawn(g->nodes[i]))
            order[n++] = &all[i];
    place(all, order, n, rows, &width, &height);
    td__text_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                    "width=\"%.0f\" height=\"%.0f\">\n",
                    width, height, width, height);
    td__text_add(out, STYLE);
    td__text_printf(out, "<text class=\"title\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 14);
    td__text_html(out, title);
    td__text_add(out, "</text>\n");
    for (int i = 0; i < n; i++)
        svg_edges(out, all, order[i]);
    for (int i = 0; i < n; i++)
        svg_box(out, order[i]);
    td__text_add(out, "</svg>\n");
    td__free(all);
    td__free(order);
    return td__text_status(out);
}
