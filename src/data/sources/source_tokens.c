/* source_tokens.c -- token files as llm.c writes them.
 *
 *     256 x i32, little-endian: 20240520 (magic), 1 (version), count of tokens, zeros
 *     count x u16: the tokens
 *
 * A part is all files that match a pattern (*_train*.bin, *_val*.bin, or what train, valid and test
 * say), in the order of their names; windows do not cross files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/windows.h"

enum { MAGIC = 20240520, VERSION = 1, HEADER = 256 * 4, GPT2_VOCAB = 50257, MAX_VOCAB = 65536 };

#define EXPECTED "token files of llm.c (magic 20240520): *_train*.bin, and *_val*.bin for valid"

static int64_t header_int(const td__file_map *m, size_t i)
{
    int32_t x;
    memcpy(&x, m->data + 4 * i, sizeof x);
    return x;
}

static td_status open_run(td__run *run, const char *path, int64_t vocab)
{
    TD_TRY(td__data_map(path, EXPECTED, &run->map));
    const td__file_map *m = &run->map;
    if (m->nbytes < HEADER || header_int(m, 0) != MAGIC)
        return TD_FAIL(TD_EPROTO, "%s: not a token file of llm.c (magic %d)", path, MAGIC);
    if (header_int(m, 1) != VERSION)
        return TD_FAIL(TD_EPROTO, "%s: version %" PRId64 ", expected %d", path, header_int(m, 1),
                       VERSION);
    run->count = header_int(m, 2);
    if (run->count < 0 || (uint64_t)run->count * 2 != m->nbytes - HEADER)
        return TD_FAIL(TD_EPROTO, "%s: its header says %" PRId64 " tokens, but it has %zu bytes",
                       path, run->count, m->nbytes - HEADER);
    const uint16_t *tokens = (const uint16_t *)(const void *)(m->data + HEADER);
    int64_t most = 0;
    for (int64_t i = 0; i < run->count; i++)
        most = tokens[i] > most ? tokens[i] : most;
    if (most >= vocab)
        return TD_FAIL(TD_EINVAL, "%s: token %" PRId64 " is not below data.vocab, %" PRId64, path,
                       most, vocab);
    run->tokens = tokens;
    return TD_OK;
}

static td_status open_all(const glob_t *found, td__windows_opts *w, td__run *runs, int *n_runs,
                          td__dataset **out)
{
    for (size_t i = 0; i < found->gl_pathc; i++) {
        ++*n_runs;
        TD_TRY(open_run(&runs[i], found->gl_pathv[i], w->vocab));
    }
    return td__windows_create("tokens", w, runs, *n_runs, out);
}

static td_status tokens_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    bool train = strcmp(part, "train") == 0;
    td__windows_opts w = {.context = o->context,
                          .stride = o->stride,
                          .width = 2,
                          .vocab = o->vocab ? o->vocab : GPT2_VOCAB};
    const char *pattern = train                        ? o->train
                          : strcmp(part, "valid") == 0 ? o->valid
                          : strcmp(part, "test") == 0  ? o->test
                                                       : NULL;
    bool named = pattern != NULL;
    char path[TD__PATH];
    glob_t found = {0};
    td__run *runs = NULL;
    int n_runs = 0;
    td_status st = TD_OK;

    *out = NULL;
    if (w.vocab < 1 || w.vocab > MAX_VOCAB)
        return TD_FAIL(TD_EINVAL, "tokens: vocab is %" PRId64 ", expected 1 to %d", w.vocab,
                       MAX_VOCAB);
    if (!named && strcmp(part, "test") == 0)
        return TD_FAIL(TD_ENOTSUP, "tokens: no files for part test");
    TD_TRY(td__data_path(o->dir, named ? pattern : train ? "*_train*.bin" : "*_val*.bin", path));
    if (glob(path, 0, NULL, &found) != 0 || found.gl_pathc > INT32_MAX / 2) {
        globfree(&found);
        if (!named && !train)
            return TD_FAIL(TD_ENOTSUP, "tokens: no files for part valid");
        return TD_FAIL(TD_EINVAL, "%s: no file matches; expected %s", path, EXPECTED);
    }
    TD_TRY_OR(st, done, td__arena_create(&w.arena));
    runs = td__arena_alloc(w.arena, found.gl_pathc * sizeof *runs);
    if (!runs)
        st = TD_FAIL(TD_ENOMEM, "no memory for %zu token files", found.gl_pathc);
    else
        st = open_all(&found, &w, runs, &n_runs, out);
done:
    globfree(&found);
    if (st && w.arena) {
        for (int i = 0; i < n_runs; i++)
            td__file_map_close(&runs[i].map);
        td__arena_destroy(w.arena);
    }
    return st;
}

const td__source_def td__source_tokens = {
    .name = "tokens",
    .help = "token files (.bin) of llm.c: x is `context` tokens, y the same shifted by one",
    .reads = "dir train valid test context stride vocab",
    .open = tokens_open,
};
