/* plan.c -- the plan as an object: lists that grow, its digest. See plan.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/sha256.h"

td_status td__plan_create(const td__rank_mesh *mesh, td__axis axis, int chunks, td__plan **out)
{
    td__plan *p = td__calloc(1, sizeof *p);
    if (p) {
        p->mesh = *mesh;
        p->axis = axis;
        p->n_chunks = chunks;
        p->roles = td__calloc((size_t)mesh->size[axis], sizeof *p->roles);
        p->chunks = td__calloc((size_t)chunks + 1, sizeof *p->chunks);
    }
    if (!p || !p->roles || !p->chunks) {
        td__plan_destroy(p);
        return TD_FAIL(TD_ENOMEM, "no memory for a communication plan");
    }
    *out = p;
    return TD_OK;
}

void td__plan_destroy(td__plan *p)
{
    if (!p)
        return;
    for (int r = 0; p->roles && r < td__plan_roles(p); r++)
        td__free(p->roles[r].ops);
    for (int c = 0; p->chunks && c < p->n_chunks; c++)
        td__free(p->chunks[c]);
    td__free(p->chunks);
    td__free(p->roles);
    td__free(p);
}

td_status td__plan_name_chunk(td__plan *p, int chunk, const char *name)
{
    td__free(p->chunks[chunk]);
    p->chunks[chunk] = td__strdup(name);
    return p->chunks[chunk] ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the name of a chunk");
}

td_status td__plan_add(td__plan *p, int role, const td__plan_op *op, int *index)
{
    td__plan_list *l = &p->roles[role];
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 64;
        td__plan_op *ops = td__realloc(l->ops, (size_t)room * sizeof *ops);
        if (!ops)
            return TD_FAIL(TD_ENOMEM, "no memory for a communication plan of %d operations", room);
        l->ops = ops;
        l->room = room;
    }
    if (index)
        *index = l->n;
    l->ops[l->n++] = *op;
    return TD_OK;
}

td_status td__plan_wait_for(td__plan *p, int role, int op, int before)
{
    int32_t *after = p->roles[role].ops[op].after;
    for (int i = 0; i < TD__PLAN_AFTER; i++)
        if (after[i] == TD__PLAN_NONE || after[i] == before) {
            after[i] = before;
            return TD_OK;
        }
    return TD_FAIL(TD_EINVAL, "operation %d of role %d waits for more than %d others", op, role,
                   TD__PLAN_AFTER);
}

/* ---- Digest ---------------------------------------------------------------------------------- */

static void put(td__sha256 *h, uint64_t v)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    td__sha256_update(h, bytes, sizeof bytes);
}

td_status td__plan_digest(const td__plan *p, char hex[65])
{
    td__sha256 h;
    uint8_t digest[TD_SHA256_BYTES];
    TD_TRY(td__sha256_init(&h));
    for (int a = 0; a < TD_AXES; a++)
        put(&h, (uint64_t)p->mesh.size[a]);
    put(&h, (uint64_t)p->axis);
    for (int r = 0; r < td__plan_roles(p); r++) {
        put(&h, (uint64_t)p->roles[r].n);
        for (int i = 0; i < p->roles[r].n; i++) {
            const td__plan_op *o = &p->roles[r].ops[i];
            put(&h, (uint64_t)o->kind | (uint64_t)o->lane << 8 | (uint64_t)o->axis << 16 |
                        (uint64_t)o->coll << 24 | (uint64_t)o->phase << 32 |
                        (uint64_t)(uint16_t)o->peer << 48);
            put(&h, (uint64_t)o->chunk | (uint64_t)o->other << 16 | (uint64_t)o->micro_batch << 32);
            put(&h, o->nbytes);
            for (int k = 0; k < TD__PLAN_AFTER; k++)
                put(&h, (uint64_t)(int64_t)o->after[k]);
        }
    }
    td__sha256_final(&h, digest);
    td__sha256_hex(digest, hex);
    return TD_OK;
}
