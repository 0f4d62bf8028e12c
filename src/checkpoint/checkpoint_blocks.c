/* checkpoint_blocks.c -- blocks of numbers that go into a checkpoint beside params and optimizer
 * states: "sync/<rule>/<name>" in optimizer.safetensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "checkpoint/checkpoint_impl.h"

td_status td__block_copies_take(td__block_copies *c, const td__checkpoint_block *blocks, int n)
{
    size_t floats = 0, at = 0;
    TD_ASSERT(n <= TD__CHECKPOINT_BLOCKS, "%d blocks", n);
    for (int i = 0; i < n; i++)
        floats += blocks[i].count;
    if (c->nbytes != floats * sizeof(float)) {
        td__block_copies_fini(c);
        c->data = floats ? td__alloc_block(floats * sizeof(float)) : NULL;
        if (floats && !c->data)
            return TD_FAIL(TD_ENOMEM, "no memory for a copy of %zu bytes to checkpoint",
                           floats * sizeof(float));
        c->nbytes = floats * sizeof(float);
    }
    for (int i = 0; i < n; at += blocks[i++].count) {
        snprintf(c->name[i], sizeof c->name[i], "%s", blocks[i].name);
        c->count[i] = blocks[i].count;
        memcpy(c->data + at, blocks[i].data, blocks[i].count * sizeof(float));
    }
    c->n = n;
    return TD_OK;
}

void td__block_copies_fini(td__block_copies *c)
{
    td__free_block(c->data, c->nbytes);
    *c = (td__block_copies){0};
}

td_status td__block_copies_list(const td__block_copies *c, td_tensor *tensors,
                                td_named_tensor *items)
{
    float *data = c->data;
    for (int i = 0; i < c->n; data += c->count[i++]) {
        items[i] = (td_named_tensor){.name = c->name[i], .tensor = &tensors[i]};
        TD_TRY(td_tensor_wrap(&tensors[i], TD_F32, TD_SHAPE((int64_t)c->count[i]), data));
    }
    return TD_OK;
}

td_status td__checkpoint_read_block(const td__checkpoint_info *info, td__checkpoint_block *block,
                                    bool *found)
{
    char path[TD__PATH];
    td_safetensors *s;
    td_status st = TD_OK;

    TD_TRY(td__run_dir_path(info->path, td__checkpoint_file_name(TD__FILE_OPTIMIZER), path));
    TD_TRY(td_safetensors_open(path, &s));
    int k = td_safetensors_find(s, block->name);
    *found = k >= 0;
    if (*found) {
        td_tensor t = td_safetensors_tensor(s, k);
        if (t.dtype != TD_F32 || (size_t)td_shape_count(&t.shape) != block->count)
            st = TD_FAIL(TD_EINVAL, "%s: '%s' has another size or type than this run's", path,
                         block->name);
        else
            memcpy(block->data, t.data, block->count * sizeof(float));
    }
    td_safetensors_close(s);
    return st;
}
