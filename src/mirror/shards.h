/* shards.h -- a checkpoint that the ranks of a job send in shards, each what it holds (mirror.h).
 * Besides the files that rank 0 sends whole, URL/step-00000100/ holds
 *
 *     shard-1-of-4-TOKEN          bytes of the checkpoint's large files, one range after the other
 *     shard-1-of-4-TOKEN.json     its size and sha256: that it is whole
 *     shards.json                 all shards: size, sha256, and where their ranges belong
 *
 * Rank 0 sends its own shard (what nobody else holds, and the beginnings of the files), waits until
 * it sees all others', and then sends shards.json and state.json. So a checkpoint is there when all
 * ranks have sent theirs, and none of them waits for another while it trains. Who fetches puts the
 * files together and knows neither tensors nor ranks; state.json has the sha256 of the whole. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_MIRROR_SHARDS_H
#define TD_MIRROR_SHARDS_H

#include <jansson.h>

#include "base/sha256.h"
#include "run/observer.h"

#define TD__SHARDS_FILE "shards.json"
#define TD__SHARDS_FORMAT "tandem shards"
enum { TD__SHARD_NAME = 64, TD__SHARDS_JSON_MAX = 16 << 20 };

/* "shard-1-of-4-0badcafe" */
void td__shard_name(int rank, int ranks, uint32_t token, char name[TD__SHARD_NAME]);

/* What rank 0 knows of a checkpoint that is sent in shards. */
typedef struct td__shard_offer {
    uint64_t step, generation;
    int ranks;
    uint32_t token;
    json_t *rows; /* [rank, file, tensor, first, count] each */
} td__shard_offer;
TD_NODISCARD td_status td__shard_offer_create(const td__shards_event *e, uint32_t token,
                                              td__shard_offer **out);
void td__shard_offer_destroy(td__shard_offer *o); /* NULL is allowed */

/* Where the shards' ranges lie in the files of `folder`: [{"object": ..., "ranges": [[file, offset,
 * nbytes], ...]}, ...], by rank; rank 0's are all that the others do not have. */
TD_NODISCARD td_status td__shard_places(const td__shard_offer *o, const char *folder, json_t **out);
/* The bytes of all ranges. */
uint64_t td__shard_nbytes(const json_t *shard);

/* The shards' files, made from shards.json; state: the checkpoint's state.json. get: fetches an
 * object of the checkpoint to a file. */
typedef td_status (*td__shard_get)(void *user, const char *object, const char *path,
                                   const char *sha256);
TD_NODISCARD td_status td__shards_assemble(const json_t *shards, const json_t *state,
                                           const char *folder, td__shard_get get, void *user);
/* Is that the name of a file beside state.json, and nothing else? */
bool td__is_plain_name(const char *name);

#endif
