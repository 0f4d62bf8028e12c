/* checkpoint_blocks.c -- see blocks.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "checkpoint/checkpoint_impl.h"

static const char PREFIX[] = "sync/";

td_status td__block_copies_reserve(td__block_copies *c, size_t nbytes)
{
    c->list.n = 0;
    if (c->nbytes == nbytes)
        return TD_OK;
    td__block_copies_fini(c);
    if (!nbytes)
        return TD_OK;
    c->data = td__alloc_block(nbytes);
    if (!c->data)
        return TD_FAIL(TD_ENOMEM, "no memory for a copy of %zu bytes of the run's state", nbytes);
    c->nbytes = nbytes;
    return TD_OK;
}

/* A block more; there is room for it. */
static void append(td__block_copies *c, const char *name, const float *data, size_t count)
{
    size_t at = 0;
    int i = c->list.n++;
    for (int k = 0; k < i; k++)
        at += c->list.count[k];
    snprintf(c->list.name[i], sizeof c->list.name[i], "%s", name);
    c->list.count[i] = count;
    memcpy(c->data + at, data, count * sizeof *data);
}

td_status td__block_copies_take(td__block_copies *c, const td__checkpoint_block *blocks, int n)
{
    size_t floats = 0;
    TD_ASSERT(n <= TD__CHECKPOINT_BLOCKS, "%d blocks", n);
    for (int i = 0; i < n; i++)
        floats += blocks[i].count;
    TD_TRY(td__block_copies_reserve(c, floats * sizeof(float)));
    for (int i = 0; i < n; i++)
        append(c, blocks[i].name, blocks[i].data, blocks[i].count);
    return TD_OK;
}

const float *td__block_copies_find(const td__block_copies *c, const char *name, size_t *count)
{
    const float *data = c->data;
    for (int i = 0; i < c->list.n; data += c->list.count[i++])
        if (strcmp(c->list.name[i], name) == 0) {
            *count = c->list.count[i];
            return data;
        }
    return NULL;
}

void td__block_copies_fini(td__block_copies *c)
{
    td__free_block(c->data, c->nbytes);
    *c = (td__block_copies){.nbytes = 0};
}

td_status td__block_copies_list(const td__block_copies *c, td_tensor *tensors,
                                td_named_tensor *items)
{
    float *data = c->data;
    for (int i = 0; i < c->list.n; data += c->list.count[i++]) {
        items[i] = (td_named_tensor){.name = c->list.name[i], .tensor = &tensors[i]};
        TD_TRY(td_tensor_wrap(&tensors[i], TD_F32, TD_SHAPE((int64_t)c->list.count[i]), data));
    }
    return TD_OK;
}

/* The blocks of an open file, if they are what we write. */
static td_status read_all(const td_safetensors *s, const char *path, td__block_copies *out)
{
    td__checkpoint_block at[TD__CHECKPOINT_BLOCKS];
    int n = 0;

    for (int i = 0; i < td_safetensors_count(s); i++) {
        const char *name = td_safetensors_name(s, i);
        if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        td_tensor t = td_safetensors_tensor(s, i);
        if (n == TD__CHECKPOINT_BLOCKS || t.dtype != TD_F32 || strlen(name) >= TD__BLOCK_NAME)
            return TD_FAIL(TD_EINVAL, "%s: '%s' is not a state that this version knows", path,
                           name);
        at[n++] = (td__checkpoint_block){name, t.data, (size_t)td_shape_count(&t.shape)};
    }
    return td__block_copies_take(out, at, n);
}

td_status td__checkpoint_read_blocks(const td__checkpoint_info *info, td__block_copies *out)
{
    char path[TD__PATH];
    td_safetensors *s;

    TD_TRY(td__run_dir_path(info->path, td__checkpoint_file_name(TD__FILE_OPTIMIZER), path));
    TD_TRY(td_safetensors_open(path, &s));
    td_status st = read_all(s, path, out);
    td_safetensors_close(s);
    return st;
}
