/* event_json.h -- what happens in a run as JSON, one object per line: metrics.jsonl and
 * `tandem train --json` are made of these lines.
 *
 *     {"kind": "begin", "step": 0, "name": "digits", "time": 1.7e9, ...}
 *     {"kind": "step", "step": 1, "epoch": 0, "loss": 2.31, "lr": 0.001, "samples": 64, ...}
 *     {"kind": "eval", "step": 100, "epoch": 0, "part": "valid", "metrics": {"loss": ...}, ...}
 *     {"kind": "checkpoint", "step": 100, "path": "...", "nbytes": ..., ...}
 *     {"kind": "ranks", "step": 100, "steps": 99, "compute": [...], "wait": [...], ...}
 *     {"kind": "order", "step": 100, "rule": "async-peer", "rank": 1, "counted": [[0], []], ...}
 *     {"kind": "end", "step": 500, "end": "done", "digest": "sha256:...", ...} */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_EVENT_JSON_H
#define TD_RUN_EVENT_JSON_H

#include "base/text.h"
#include "run/observer.h"
#include "run/result.h"

/* Each appends one line with its end. */
void td__json_begin(td__text *t, const td__train_info *e);
void td__json_step(td__text *t, const td__step_event *e);
void td__json_eval(td__text *t, const td__eval_event *e);
void td__json_checkpoint(td__text *t, const td__checkpoint_event *e);
void td__json_end(td__text *t, const td__train_result *r);
void td__json_ranks(td__text *t, const td__ranks_event *e);
void td__json_order(td__text *t, const td__order_event *e);

const char *td__train_end_name(td__train_end end); /* "done" */

#endif
