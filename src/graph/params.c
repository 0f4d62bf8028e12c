/* params.c -- the numbers of a model: one block, names, and where each lies in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/params.h"

#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/init.h"
#include "graph/program_impl.h"
#include "graph/tensor.h"
#include "graph/walk.h"

static td_status index_names(td_params *ps)
{
    ps->by_name = td__calloc((size_t)ps->count + 1, sizeof *ps->by_name);
    if (!ps->by_name)
        return TD_FAIL(TD_ENOMEM, "no memory for the names of %d params", ps->count);
    for (int i = 0; i < ps->count; i++)
        ps->by_name[i] = (td__named){.name = ps->info[i].name, .index = i};
    td__names_sort(ps->by_name, ps->count);
    return TD_OK;
}

static td_status fill(td_params *ps, const td_program *p, const uint64_t *seed)
{
    td__param_cut cut;
    for (int i = 0; i < p->n_slots; i++) {
        const td__slot *slot = &p->slots[i];
        const td_attr_leaf *leaf = slot->leaf->attr;
        td_param_info *info = &ps->info[i];
        info->name = td__strdup(slot->leaf->name);
        if (!info->name)
            return TD_FAIL(TD_ENOMEM, "td_params_create: no memory for a name");
        ps->count = i + 1;
        ps->origin[i] = slot->leaf->origin ? td__strdup(slot->leaf->origin) : NULL;
        info->shape = leaf->shape;
        info->offset = slot->offset;
        info->count = (size_t)td_shape_count(&leaf->shape);
        info->is_state = slot->is_state;
        info->sparse = slot->sparse;
        size_t end = slot->offset + td__align_up(info->count, TD_ALIGN_FLOATS);
        if (!slot->is_state)
            ps->trainable = end;
        if (!slot->is_state && !slot->sparse)
            ps->dense = end;
    }
    TD_TRY(index_names(ps));
    for (int i = 0; td__program_param_cut(p, i, &cut); i++)
        if (cut.pieces.packed)
            ps->pieces[td_params_find(ps, cut.name)] = cut.pieces;
    for (int i = 0; seed && i < ps->count; i++)
        TD_TRY(td__params_fill(ps, p, i, *seed));
    return TD_OK;
}

td_status td__params_fill(td_params *ps, const td_program *p, int i, uint64_t seed)
{
    const td_attr_leaf *leaf = p->slots[i].leaf->attr;
    td__mapping map;
    TD_TRY(td__params_map_tensor(ps, i, TD_MAP_WRITE, &map));
    td_status st = td__init_fill(&leaf->init, &leaf->shape, seed, ps->info[i].name, map.at);
    if (!st)
        return td__params_unmap_tensor(ps, i, &map);
    td__mem_map_drop(&map);
    return st;
}

td_status td__params_create(const td_program *p, const uint64_t *seed, td_params **out)
{
    *out = NULL;
    td_params *ps = td__calloc(1, sizeof *ps);
    if (!ps)
        return TD_FAIL(TD_ENOMEM, "td_params_create: no memory");
    ps->total = p->trainable + p->states;
    ps->version = 1;
    ps->info = td__calloc((size_t)p->n_slots + 1, sizeof *ps->info);
    ps->pieces = td__calloc((size_t)p->n_slots + 1, sizeof *ps->pieces);
    ps->origin = td__calloc((size_t)p->n_slots + 1, sizeof *ps->origin);
    td_status st =
        ps->info && ps->origin && ps->pieces
            ? td__mem_alloc(p->backend->device, TD_MEM_OWN, ps->total * sizeof(float), &ps->mem)
            : TD_FAIL(TD_ENOMEM, "td_params_create: no memory");
    ps->block = ps->mem.at;
    if (!st)
        st = fill(ps, p, seed);
    if (st) {
        td_params_destroy(ps);
        return st;
    }
    *out = ps;
    return TD_OK;
}

td_status td_params_create(const td_program *p, uint64_t seed, td_params **out)
{
    return td__params_create(p, &seed, out);
}

void td_params_destroy(td_params *ps)
{
    if (!ps)
        return;
    for (int i = 0; i < ps->count; i++) {
        td__free((void *)(uintptr_t)ps->info[i].name);
        if (ps->origin)
            td__free(ps->origin[i]);
    }
    td__free(ps->origin);
    td__free(ps->info);
    td__free(ps->pieces);
    td__free(ps->by_name);
    td__mem_free(&ps->mem);
    td__free(ps);
}

int td_params_count(const td_params *ps)
{
    return ps->count;
}

td_param_info td_params_info(const td_params *ps, int i)
{
    TD_ASSERT(i >= 0 && i < ps->count, "param %d of %d", i, ps->count);
    return ps->info[i];
}

const char *td__params_origin(const td_params *ps, int i)
{
    return ps->origin ? ps->origin[i] : NULL;
}

int td_params_find(const td_params *ps, const char *name)
{
    return td__names_find(ps->by_name, ps->count, name);
}

float *td_params_block(td_params *ps, size_t *count)
{
    if (count)
        *count = ps->total;
    return ps->block;
}

td_device *td__params_device(const td_params *ps)
{
    return ps->mem.device;
}

td_status td__params_map(const td_params *ps, size_t begin, size_t count, td__map_use use,
                         td__mapping *out)
{
    TD_ASSERT(begin + count <= ps->total, "[%zu, %zu) of %zu", begin, begin + count, ps->total);
    return td__mem_map(ps->mem.device, ps->block + begin, count * sizeof(float), use, out);
}

void td__params_thin(td_params *ps)
{
    td__mem_thin(&ps->mem);
}

void td__params_discard(td_params *ps, size_t begin, size_t count)
{
    td__mem_discard(&ps->mem, begin * sizeof(float), count * sizeof(float));
}

td_status td_params_read(const td_params *ps, size_t begin, size_t count, float *to)
{
    if (begin > ps->total || count > ps->total - begin)
        return TD_FAIL(TD_EINVAL, "td_params_read: elements [%zu, +%zu) of %zu", begin, count,
                       ps->total);
    return td__mem_read(ps->mem.device, to, ps->block + begin, count * sizeof *to);
}

td_status td_params_write(td_params *ps, size_t begin, size_t count, const float *from)
{
    if (begin > ps->total || count > ps->total - begin)
        return TD_FAIL(TD_EINVAL, "td_params_write: elements [%zu, +%zu) of %zu", begin, count,
                       ps->total);
    TD_TRY(td__mem_write(ps->mem.device, ps->block + begin, from, count * sizeof *from));
    td_params_touch(ps);
    return TD_OK;
}

size_t td_params_trainable(const td_params *ps)
{
    return ps->trainable;
}

void td_params_touch(td_params *ps)
{
    ps->version++;
}

size_t td__params_dense(const td_params *ps)
{
    return ps->dense;
}

size_t td__params_total(const td_params *ps)
{
    return ps->total;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static bool same_tensor(const td_param_info *a, const td_param_info *b)
{
    return strcmp(a->name, b->name) == 0 && td_shape_equal(&a->shape, &b->shape) &&
           a->offset == b->offset && a->is_state == b->is_state && a->sparse == b->sparse;
}

static bool same_tensors(const td_params *a, const td_params *b)
{
    bool same = a->count == b->count && a->total == b->total;
    for (int i = 0; same && i < a->count; i++)
        same = same_tensor(&a->info[i], &b->info[i]);
    return same;
}

static td_status make_alike(const td_params *from, td_params **out)
{
    td_params *ps = *out = td__calloc(1, sizeof *ps);
    if (!ps)
        return TD_FAIL(TD_ENOMEM, "no memory for a copy of the params");
    ps->dense = from->dense;
    ps->trainable = from->trainable;
    ps->total = from->total;
    ps->info = td__calloc((size_t)from->count + 1, sizeof *ps->info);
    if (!ps->info)
        return TD_FAIL(TD_ENOMEM, "no memory for a copy of %d params", from->count);
    for (int i = 0; i < from->count; i++) {
        ps->info[i] = from->info[i];
        ps->info[i].name = td__strdup(from->info[i].name);
        ps->count = i + 1;
        if (!ps->info[i].name)
            return TD_FAIL(TD_ENOMEM, "no memory for a copy of the params' names");
    }
    td_device *host;
    TD_TRY(index_names(ps));
    TD_TRY(td__device_open("host", &host));
    td_status st = td__mem_alloc(host, TD_MEM_OWN, ps->total * sizeof(float), &ps->mem);
    td__device_release(host); /* the memory holds it */
    ps->block = ps->mem.at;
    return st;
}

td_status td__params_copy(const td_params *from, td_params **copy)
{
    if (!*copy || !same_tensors(from, *copy)) {
        td_params_destroy(*copy);
        td_status st = make_alike(from, copy);
        if (st) {
            td_params_destroy(*copy);
            *copy = NULL;
            return st;
        }
    }
    TD_TRY(td_params_read(from, 0, from->total, (*copy)->block));
    (*copy)->version++;
    return td__params_unpack(from, (*copy)->block);
}
