/* params_pieces.c -- params that lie piece by piece in their block, as users see them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "graph/program_impl.h"

const td_attr_pieces *td__params_pieces(const td_params *ps, int i)
{
    return ps->pieces && ps->pieces[i].pieces ? &ps->pieces[i] : NULL;
}

/* All pieces, row by row of what lies side by side in the plain tensor. */
static void move(const td_attr_pieces *how, float *packed, float *plain, bool pack)
{
    td_attr_pieces rows = *how;
    rows.packed = 0;
    for (int w = 0; w < how->pieces; w++) {
        td__tensor_piece p = td__piece_of(&rows, &how->whole, w);
        size_t row = (size_t)(p.count * p.inner) * sizeof *plain;
        for (int64_t o = 0; o < p.outer * p.groups && row; o++, packed += p.count * p.inner) {
            float *at = plain + (o * p.group + p.begin) * p.inner;
            memcpy(pack ? packed : at, pack ? at : packed, row);
        }
    }
}

void td__pieces_pack(const td_attr_pieces *how, float *packed, const float *plain)
{
    move(how, packed, (float *)(uintptr_t)plain, true);
}

void td__pieces_unpack(const td_attr_pieces *how, float *plain, const float *packed)
{
    move(how, (float *)(uintptr_t)packed, plain, false);
}

td_status td__params_map_at(const td_params *ps, int i, float *at, td__map_use use,
                            td__mapping *out)
{
    const td_param_info *info = &ps->info[i];
    const td_attr_pieces *how = td__params_pieces(ps, i);
    size_t nbytes = info->count * sizeof(float);
    td__mapping packed;
    if (!how)
        return td__mem_map(ps->mem.device, at, nbytes, use, out);
    *out = (td__mapping){.device = ps->mem.device, .of = at, .nbytes = nbytes, .use = use};
    out->at = td__alloc_block(nbytes);
    if (!out->at) {
        memset(out, 0, sizeof *out);
        return TD_FAIL(TD_ENOMEM, "no memory for a copy of '%s'", info->name);
    }
    if (!(use & TD_MAP_READ))
        return TD_OK;
    td_status st = td__mem_map(ps->mem.device, at, nbytes, TD_MAP_READ, &packed);
    if (st) {
        td__mem_map_drop(out);
        return st;
    }
    td__pieces_unpack(how, out->at, packed.at);
    td__mem_map_drop(&packed);
    return TD_OK;
}

td_status td__params_map_tensor(const td_params *ps, int i, td__map_use use, td__mapping *out)
{
    return td__params_map_at(ps, i, ps->block + ps->info[i].offset, use, out);
}

td_status td__params_unmap_tensor(const td_params *ps, int i, td__mapping *map)
{
    const td_attr_pieces *how = td__params_pieces(ps, i);
    td__mapping packed;
    if (!how)
        return td__mem_unmap(map);
    td_status st = TD_OK;
    if (map->use & TD_MAP_WRITE) {
        st = td__mem_map(map->device, map->of, map->nbytes, TD_MAP_WRITE, &packed);
        if (!st) {
            td__pieces_pack(how, packed.at, map->at);
            st = td__mem_unmap(&packed);
        }
    }
    td__mem_map_drop(map);
    return st;
}

td_status td__params_unpack(const td_params *ps, float *block)
{
    for (int i = 0; i < ps->count; i++) {
        const td_attr_pieces *how = td__params_pieces(ps, i);
        float *at = block + ps->info[i].offset;
        size_t nbytes = ps->info[i].count * sizeof *at;
        float *packed = how ? td__alloc_block(nbytes) : NULL;
        if (!how)
            continue;
        if (!packed)
            return TD_FAIL(TD_ENOMEM, "no memory for a copy of '%s'", ps->info[i].name);
        memcpy(packed, at, nbytes);
        td__pieces_unpack(how, at, packed);
        td__free_block(packed, nbytes);
    }
    return TD_OK;
}
