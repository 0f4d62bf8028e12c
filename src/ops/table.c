/* table.c -- operator definitions by opcode, made from ops.def. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "ops/op.h"

static const td_op_def *const TABLE[TD_OP_COUNT] = {
#define TD_OP(ID, name) [TD_OP_##ID] = &td__op_##name,
#include "ops/ops.def"
#undef TD_OP
};

const td_op_def *td__op(td_opcode op)
{
    TD_ASSERT((unsigned)op < TD_OP_COUNT, "opcode %d of %d", (int)op, (int)TD_OP_COUNT);
    return TABLE[op];
}
