/* export_model.h -- a trained model as an ONNX file or as a PyTorch module. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_EXPORT_MODEL_H
#define TD_API_EXPORT_MODEL_H

#include "api/session.h"

/* Of a session on the checkpoint `info`. The module is PATH.py, its weights lie beside it as
 * PATH.safetensors, which is written by the caller. */
TD_NODISCARD td_status td__export_model_onnx(const td__session *s, const td__checkpoint_info *info,
                                             const char *path);
TD_NODISCARD td_status td__export_model_torch(const td__session *s, const td__checkpoint_info *info,
                                              const char *weights, const char *path);

#endif
