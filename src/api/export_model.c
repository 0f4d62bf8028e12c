/* export_model.c -- see export_model.h. Rows of tables are preprocessed in Python as they are here:
 * the module carries what the checkpoint knows of the data, preprocessing.json. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/export_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "export/export.h"

enum { ROWS = 2, OTHER_ROWS = 5 };

/* Puts numbers into the places of x as data/schema.h says, then what the map stages do. */
static const char PREPROCESS[] =
    "\n"
    "\n"
    "def text_of(value):\n"
    "    if isinstance(value, dict):\n"
    "        return bytes.fromhex(value['hex']).decode('latin-1')\n"
    "    return value\n"
    "\n"
    "\n"
    "MISSING = {'', '#N/A', '#N/A N/A', '#NA', '-1.#IND', '-1.#QNAN', '-NaN', '-nan', '1.#IND',\n"
    "           '1.#QNAN', '<NA>', 'N/A', 'NA', 'NULL', 'NaN', 'None', 'n/a', 'nan', 'null'}\n"
    "\n"
    "\n"
    "def same(a, b):\n"
    "    try:\n"
    "        return float(a) == float(b)\n"
    "    except ValueError:\n"
    "        return a == b\n"
    "\n"
    "\n"
    "def cell(row, name):\n"
    "    value = row.get(name, '')\n"
    "    return '' if value is None else str(value)\n"
    "\n"
    "\n"
    "def preprocess(rows):\n"
    "    \"\"\"Inputs of the model from rows: dicts of columns, as of csv.DictReader.\"\"\"\n"
    "    if 'columns' not in FIT.get('measured', {}):\n"
    "        raise NotImplementedError('samples of ' + FIT['source'] + ' are given as tensors')\n"
    "    x, own = [], {}\n"
    "    for row in rows:\n"
    "        places = []\n"
    "        for c in FIT['measured']['columns']:\n"
    "            name, kind = text_of(c['name']), c['kind']\n"
    "            value = cell(row, name)\n"
    "            if kind in ('number', 'bucketized'):\n"
    "                v = c['fill_least_most'][0] if value.strip() in MISSING else float(value)\n"
    "            if kind == 'number':\n"
    "                places.append(v)\n"
    "            elif kind == 'bucketized':\n"
    "                at = sum(v >= b for b in c['boundaries'])\n"
    "                places += [float(i == at) for i in range(len(c['boundaries']) + 1)]\n"
    "            elif kind == 'category':\n"
    "                places += [float(same(value, text_of(k))) for k in c['values']]\n"
    "            elif kind == 'embedding':\n"
    "                ids = [i for i, k in enumerate(c['values'], 1) if same(value, text_of(k))]\n"
    "                own.setdefault(name, []).append(ids[0] if ids else 0)\n"
    "            else:\n"
    "                raise NotImplementedError(kind + ' columns')\n"
    "        x.append(places)\n"
    "    fields = {name: torch.tensor(v, dtype=torch.int32) for name, v in own.items()}\n"
    "    fields['x'] = torch.tensor(x, dtype=torch.float64).to(torch.float32)\n"
    "    for m in FIT['maps']:\n"
    "        if m['map'] != 'normalize':\n"
    "            raise NotImplementedError('the stage ' + m['map'])\n"
    "        mean, std = (torch.tensor(m[k], dtype=torch.float32) for k in ('mean', 'std'))\n"
    "        fields[m['field']] = (fields[m['field']] - mean) / std\n"
    "    return [fields[name] for name in INPUTS]\n"
    "\n"
    "\n"
    "CLASSES = next((f.get('names') for f in FIT.get('fields', []) if f['name'] == TARGET), None)\n"
    "\n"
    "\n"
    "def predict(rows, model=None):\n"
    "    \"\"\"The name of the most likely class of each row, or its values.\"\"\"\n"
    "    with torch.no_grad():\n"
    "        y = (model or load())(*preprocess(rows))\n"
    "    return [text_of(CLASSES[k]) for k in y.argmax(-1).tolist()] if CLASSES else y.tolist()\n";

static td_status build(const td__session *s, int64_t rows, td_graph **g, td__model_nodes *nodes)
{
    TD_TRY(td_graph_create(g));
    td_status st = s->model.build(s->model.user, *g, rows, nodes);
    if (!st && td_graph_status(*g))
        st = TD_FAIL(td_graph_status(*g), "%s", td_graph_error(*g));
    return st;
}

static void add_item(td__text *out, const char *text)
{
    td__text_json(out, text); /* a text of Python too */
    td__text_add(out, ", ");
}

/* The checkpoint's preprocessing.json as a Python value, and what the model reads. */
static td_status about_data(const td__checkpoint_info *info, const td__model_nodes *nodes,
                            td__text *out)
{
    char path[TD__PATH];
    td__file_map map;
    td__text json = {0};

    TD_TRY(td__run_dir_path(info->path, "preprocessing.json", path));
    TD_TRY(td__file_map_open(&map, path));
    td__text_append(&json, (const char *)map.data, map.nbytes);
    td__file_map_close(&map);
    td_status st = td__text_status(&json);
    if (!st) {
        td__text_add(out, "\n\nINPUTS = [");
        for (int i = 0; i < nodes->n_inputs; i++)
            if (!nodes->target || strcmp(nodes->inputs[i], nodes->target) != 0)
                add_item(out, nodes->inputs[i]);
        td__text_add(out, "]\nTARGET = ");
        td__text_json(out, nodes->target ? nodes->target : "");
        td__text_add(out, "\nFIT = json.loads(");
        td__text_json(out, json.data);
        td__text_add(out, ")\n");
        td__text_add(out, PREPROCESS);
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
        TD_TRY_OR(st, done, about_data(info, &nodes, &data));
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
