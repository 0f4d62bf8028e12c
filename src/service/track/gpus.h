/* gpus.h -- the GPUs of this host and whose they are: each belongs to one attempt at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_GPUS_H
#define TD_SERVICE_TRACK_GPUS_H

#include "service/job.h"

enum { TD__MOST_GPUS = 64 };

typedef struct td__gpus {
    int n;
    char owner[TD__MOST_GPUS][TD__TOKEN]; /* a token; "": free */
} td__gpus;

int td__gpus_of_machine(void);

/* So many (-1: those of this machine) where it was not said before; what is taken stays. */
void td__gpus_init(td__gpus *g, int64_t n);
/* n of them for a token, their numbers into ids. false: there are not so many, none is taken. */
bool td__gpus_take(td__gpus *g, const char *token, int n, int *ids);
/* One that an attempt of before has. */
void td__gpus_mark(td__gpus *g, const char *token, int id);
void td__gpus_release(td__gpus *g, const char *token);
/* "2,3" for n of the list, as CUDA_VISIBLE_DEVICES has it; returns buf. */
char *td__gpus_text(const int *ids, int n, char *buf, size_t nbytes);

#endif
