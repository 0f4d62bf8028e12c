/* scratch.c -- free pieces of working memory; see scratch.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/scratch.h"

#include "base/alloc.h"

void td__scratch_init(td__scratch_list *l, size_t nbytes)
{
    l->nbytes = nbytes;
    l->unused = NULL;
    pthread_mutex_init(&l->lock, NULL);
}

void td__scratch_fini(td__scratch_list *l)
{
    while (l->unused) {
        td__scratch *s = l->unused;
        l->unused = s->next;
        td__free_block(s->data, l->nbytes);
        td__free(s);
    }
    pthread_mutex_destroy(&l->lock);
}

td__scratch *td__scratch_take(td__scratch_list *l)
{
    pthread_mutex_lock(&l->lock);
    td__scratch *s = l->unused;
    if (s)
        l->unused = s->next;
    pthread_mutex_unlock(&l->lock);
    if (s)
        return s;
    s = td__calloc(1, sizeof *s);
    if (s)
        s->data = td__alloc_block(l->nbytes);
    if (s && !s->data) {
        td__free(s);
        s = NULL;
    }
    return s;
}

void td__scratch_give(td__scratch_list *l, td__scratch *s)
{
    pthread_mutex_lock(&l->lock);
    s->next = l->unused;
    l->unused = s;
    pthread_mutex_unlock(&l->lock);
}
