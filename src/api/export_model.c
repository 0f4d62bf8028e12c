/* export_model.c -- see export_model.h. Rows become samples in Python as they do here: the module
 * carries what the checkpoint knows of the data, and src/export/samples.py. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/export_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "export/export.h"

enum { ROWS = 2, OTHER_ROWS = 5 };

/* src/export/samples.py as it is, with a 0 behind it. */
extern const unsigned char td__samples_py[];

static td_status build(const td__session *s, int64_t rows, td_graph **g, td__model_nodes *nodes)
{
    TD_TRY(td_graph_create(g));
    td_status st = s->model.build(s->model.user, *g, rows, nodes);
    if (!st && td_graph_status(*g))
        st = TD_FAIL(td_graph_status(*g), "%s", td_graph_error(*g));
    return st;
}

/* What the module knows of rows, as a Python value, and what it does with them. */
static td_status about_data(const td__session *s, td__text *out)
{
    td__data_opts opts = *td__job_data(s->job);
    td__text json = {0};

    opts.fit = s->fit;
    td_status st = td__data_recipe(s->data, &opts, &json);
    if (!st) {
        td__text_add(out, "\n\nRECIPE = json.loads(");
        td__text_json(out, json.data); /* a text of Python too */
        td__text_add(out, ")\n");
        const char *code = strstr((const char *)td__samples_py, "\n\n\n");
        td__text_add(out, code ? code + 1 : "");
        st = td__text_status(out);
    }
    td__text_fini(&json);
    return st;
}

typedef enum form { ONNX, TORCH } form;

static td_status write_form(const td__session *s, const td__checkpoint_info *info, form f,
                            const char *weights, const char *path)
{
    td_graph *g = NULL, *other = NULL;
    td__model_nodes nodes, more;
    td_safetensors *w = NULL;
    td__text data = {0};
    char file[TD__PATH], about[160];
    td_status st;

    TD_TRY(td__run_dir_path(info->path, "model.safetensors", file));
    TD_TRY_OR(st, done, build(s, ROWS, &g, &nodes));
    if (nodes.n_tables) {
        st = TD_FAIL(TD_EINVAL,
                     "%s is on servers: its rows are in the run's checkpoints/tables, not in the "
                     "checkpoint, and the model cannot be exported without them",
                     nodes.table[0].param);
        goto done;
    }
    TD_TRY_OR(st, done, build(s, OTHER_ROWS, &other, &more));
    TD_TRY_OR(st, done, td_safetensors_open(file, &w));
    snprintf(about, sizeof about, "%.80s, step %" PRIu64 ", written by tandem export",
             td__job_name(s->job), info->state.step);
    td__export e = {.output = nodes.output, .other = more.output, .weights = w, .about = about};
    if (f == ONNX) {
        st = td__export_onnx(&e, path);
    } else {
        TD_TRY_OR(st, done, about_data(s, &data));
        st = td__export_torch(&e, weights, data.data, path);
    }
done:
    td__text_fini(&data);
    td_safetensors_close(w);
    td_graph_destroy(other);
    td_graph_destroy(g);
    return st;
}

td_status td__export_model_onnx(const td__session *s, const td__checkpoint_info *info,
                                const char *path)
{
    return write_form(s, info, ONNX, NULL, path);
}

td_status td__export_model_torch(const td__session *s, const td__checkpoint_info *info,
                                 const char *weights, const char *path)
{
    return write_form(s, info, TORCH, weights, path);
}
