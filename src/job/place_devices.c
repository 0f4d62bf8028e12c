/* place_devices.c -- `place: cuda:1` of a layer: places that are GPUs of one process. It becomes
 * the stage of that number in a pipeline whose stages are ranks in this process, one on each GPU,
 * before keys are resolved. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "job/job_impl.h"

enum { MOST = 63 }; /* devices of a process have numbers up to this one */

/* Of "cuda" or "cuda:1"; -1: it is no GPU. */
static int gpu_of(const char *text)
{
    char *end;
    if (strncmp(text, "cuda", 4) != 0)
        return -1;
    if (!text[4])
        return 0;
    long n = strtol(text + 5, &end, 10);
    bool good = text[4] == ':' && text[5] >= '0' && text[5] <= '9' && !*end && n <= MOST;
    return good ? (int)n : -1;
}

/* All places below t. *last: of the highest GPU. */
static td_status replace(td__arena *a, td__tree *t, int *most, const td__tree **last)
{
    for (td__tree *x = t->first, *next; x; x = next) {
        next = x->next;
        bool place = x->key && strcmp(x->key, "place") == 0 && x->kind == TD_TREE_SCALAR;
        int gpu = place ? gpu_of(x->text) : -1;
        if (gpu < 0) {
            TD_TRY(replace(a, x, most, last));
            continue;
        }
        const char *text = td__arena_printf(a, "%d", gpu);
        td__tree *stage = text ? td__tree_scalar(a, text, x) : NULL;
        if (!stage)
            return TD_FAIL(TD_ENOMEM, "job: out of memory");
        if (gpu > *most || !*last)
            *last = x;
        *most = gpu > *most ? gpu : *most;
        td__tree_replace(t, x, stage);
    }
    return TD_OK;
}

td_status td__place_devices_expand(td__arena *a, td__tree *given)
{
    const td__tree *last = NULL;
    int most = -1;

    if (given->kind != TD_TREE_MAP)
        return TD_OK;
    for (td__tree *x = given->first; x; x = x->next)
        if (strcmp(x->key, "model") == 0 || strcmp(x->key, "define") == 0)
            TD_TRY(replace(a, x, &most, &last));
    if (most < 0)
        return TD_OK;
    const td__tree *backend = td__tree_get(td__tree_get(given, "train"), "backend");
    if (backend && backend->kind == TD_TREE_SCALAR && strcmp(backend->text, "cuda") != 0 &&
        strcmp(backend->text, "auto") != 0)
        return TD_FAIL(TD_EINVAL,
                       "%s: place: %s is a GPU, and train.backend is %s: set it to cuda, or name "
                       "the stage (place: %d)",
                       td__tree_where(last).text, last->text, backend->text, most);
    TD_TRY(td__job_default(a, given, "train", "backend", "cuda", last));
    if (most == 0)
        return TD_OK;
    const char *n = td__arena_printf(a, "%d", most + 1);
    if (!n)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    TD_TRY(td__job_default(a, given, "parallel", "pipeline", n, last));
    return td__job_default(a, given, "parallel", "devices", n, last);
}
