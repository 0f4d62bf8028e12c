/* heads.h -- losses and metrics by name: what compares a model's output with its target. Both are
 * means over rows (tokens count as rows), so that parts of a batch can be averaged. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_HEADS_H
#define TD_STEP_HEADS_H

#include "data/dataset.h"
#include "step/model.h"
#include "tandem/train.h"

/* What is compared, and how. */
typedef struct td__head {
    td_graph *g;
    td_node *y, *target;
    td_loss_opts opts;
    const td__units *units; /* of the target; NULL: its values are real ones */
} td__head;

/* What a loss or metric compares. */
typedef enum td__head_kind {
    TD_HEAD_CLASSES,
    TD_HEAD_NUMBERS,
    TD_HEAD_PROBABILITIES
} td__head_kind;

typedef struct td__loss_def {
    const char *name;
    td__head_kind kind;
    const char *reads; /* options that it takes, by their names in jobs */
    td_node *(*build)(const td__head *h);
} td__loss_def;

typedef struct td__metric_def {
    const char *name;
    td__head_kind kind; /* of the losses that it goes with */
    bool higher_is_better;
    td_node *(*build)(const td__head *h);
    bool whole; /* of all predictions of a part at once (train/scores.h): build stands in */
} td__metric_def;

/* i = 0, 1, ...; NULL after the last. */
const td__loss_def *td__loss_list(int i);
const td__metric_def *td__metric_list(int i);

/* NULL: there is none. "auto": by what the target is. */
const td__loss_def *td__loss_find(const char *name, const td__field *target);
const td__metric_def *td__metric_find(const char *name);
/* What is measured where nobody says what; NULL: nothing besides the loss. */
const td__metric_def *td__metric_default(const td__loss_def *loss);

/* Numbers as the losses of numbers want them: (rows, 1) beside (rows) is the same thing, and
 * integers are numbers too. */
void td__head_match_numbers(td__head *h);

/* Of a loss of classes: which targets count, and what for, in `target`, where they are not all
 * alike. */
void td__head_note_targets(const td__head *h, const char *target, td__model_nodes *out);

/* For metrics: the same in the units of the data, where training normalizes the target. After
 * td__head_match_numbers. */
td__head td__head_real(const td__head *h);
/* What the model's output says in the units of the data: probabilities of logits, real values of
 * normalized ones; logits of classes stay logits. */
td_node *td__head_output(const td__head *h, const td__loss_def *loss, td_node *output);

#endif
