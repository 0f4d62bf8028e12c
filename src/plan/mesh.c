/* mesh.c -- see mesh.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static const char *const NAMES[TD_AXES + 1] = {"data", "pipeline", "tensor", "all axes"};
/* From the axis whose neighbours are neighbouring ranks to the one farthest apart. */
static const td__axis ORDER[TD_AXES] = {TD_AXIS_TENSOR, TD_AXIS_DATA, TD_AXIS_PIPELINE};
enum { MOST_RANKS = 1 << 20 };

const char *td__axis_name(td__axis axis)
{
    return NAMES[axis];
}

int td__rank_mesh_ranks(const td__rank_mesh *m)
{
    return m->size[TD_AXIS_DATA] * m->size[TD_AXIS_PIPELINE] * m->size[TD_AXIS_TENSOR];
}

/* Ranks between neighbours along the axis. */
static int stride_of(const td__rank_mesh *m, td__axis axis)
{
    int stride = 1;
    for (int i = 0; ORDER[i] != axis; i++)
        stride *= m->size[ORDER[i]];
    return stride;
}

int td__rank_mesh_coordinate(const td__rank_mesh *m, int rank, td__axis axis)
{
    return rank / stride_of(m, axis) % m->size[axis];
}

int td__rank_mesh_peer(const td__rank_mesh *m, int rank, td__axis axis, int offset)
{
    int to = td__rank_mesh_coordinate(m, rank, axis) + offset;
    return to < 0 || to >= m->size[axis] ? -1 : rank + offset * stride_of(m, axis);
}

td_status td__rank_mesh_complete(td__rank_mesh *m, int ranks)
{
    int known = 1, open = 0;
    for (int a = 0; a < TD_AXES; a++) {
        if (m->size[a] > 0 && known <= MOST_RANKS / m->size[a])
            known *= m->size[a];
        else if (m->size[a])
            return TD_FAIL(TD_EINVAL, "parallel.%s: %d is not a number of ranks", NAMES[a],
                           m->size[a]);
        open += !m->size[a];
    }
    if (ranks % known || (!open && known != ranks)) {
        char text[TD__RANK_MESH_TEXT];
        td__rank_mesh all = *m;
        for (int a = 0; a < TD_AXES; a++)
            all.size[a] = all.size[a] ? all.size[a] : 1;
        return TD_FAIL(TD_EINVAL,
                       "%s needs %s%d ranks, and there are %d: use -n %d, or sizes whose product "
                       "is %d",
                       td__rank_mesh_text(&all, text), open ? "a multiple of " : "", known, ranks,
                       open ? known * ((ranks + known - 1) / known) : known, ranks);
    }
    int left = ranks / known;
    for (int a = 0; a < TD_AXES; a++)
        if (!m->size[a]) {
            m->size[a] = left;
            left = 1;
        }
    return TD_OK;
}

static int axis_called(const char *name, size_t n)
{
    for (int a = 0; a < TD_AXES; a++)
        if (strlen(NAMES[a]) == n && !memcmp(NAMES[a], name, n))
            return a;
    return -1;
}

td_status td__rank_mesh_parse(const char *text, td__rank_mesh *out)
{
    *out = (td__rank_mesh){0};
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "=,");
        int axis = axis_called(at, n);
        if (axis < 0 || at[n] != '=')
            return TD_FAIL(TD_EINVAL,
                           "\"%s\": expected axes and their sizes, as in data=2,pipeline=4; axes "
                           "are data, pipeline, tensor",
                           text);
        char *end;
        long size = strtol(at + n + 1, &end, 10);
        if (end == at + n + 1 || size < 1 || size > MOST_RANKS || (*end && *end != ','))
            return TD_FAIL(TD_EINVAL, "\"%s\": the size of %s must be a number of at least 1", text,
                           NAMES[axis]);
        if (out->size[axis])
            return TD_FAIL(TD_EINVAL, "\"%s\": %s is given twice", text, NAMES[axis]);
        out->size[axis] = (int)size;
        if (*end == ',' && !end[1])
            return TD_FAIL(TD_EINVAL, "\"%s\": an axis is missing after the last comma", text);
        at = *end ? end + 1 : end;
    }
    return *text ? TD_OK : TD_FAIL(TD_EINVAL, "no axes are given; expected e.g. data=2,pipeline=4");
}

char *td__rank_mesh_text(const td__rank_mesh *m, char buf[TD__RANK_MESH_TEXT])
{
    size_t used = 0;
    buf[0] = 0;
    for (int a = 0; a < TD_AXES; a++)
        if (m->size[a] > 1)
            used += (size_t)snprintf(buf + used, TD__RANK_MESH_TEXT - used, "%s%s=%d",
                                     used ? "," : "", NAMES[a], m->size[a]);
    if (!used)
        snprintf(buf, TD__RANK_MESH_TEXT, "data=1");
    return buf;
}
