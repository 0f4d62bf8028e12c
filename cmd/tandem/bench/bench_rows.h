/* bench_rows.h -- the measurements of `tandem bench comm`: a growing list, as lines of text, as
 * tables, and as a picture.
 *
 * As text a row is one line with tabs between: who, collective, algorithm, ranks, bytes, and the
 * median, tenth and ninetieth percentile in microseconds. Other programs write the same, so that
 * their numbers stand beside ours. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_BENCH_ROWS_H
#define TD_CMD_BENCH_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { BENCH_NAME = 48 };

typedef struct bench_row {
    char who[BENCH_NAME]; /* "tandem shm registered", "Open MPI" */
    char collective[BENCH_NAME];
    char algorithm[BENCH_NAME];
    int ranks;
    size_t nbytes;
    double us, low, high;
} bench_row;

typedef struct bench_rows {
    bench_row *row;
    int count, room;
} bench_rows;

/* false: out of memory, or the line is none. */
bool bench_rows_add(bench_rows *rows, const bench_row *row);
bool bench_rows_parse(bench_rows *rows, const char *line);
void bench_rows_write(const bench_row *row, FILE *to);
void bench_rows_fini(bench_rows *rows);

/* "256 KB" */
const char *bench_size_text(size_t nbytes, char buf[16]);

/* One table of times and one of bandwidths for each collective and number of ranks. */
void bench_rows_print(const bench_rows *rows, FILE *to);

/* The same as an SVG picture: per collective a line of panels, time and bandwidth over bytes. */
bool bench_rows_draw(const bench_rows *rows, const char *title, const char *path);

/* Groups, for printing and drawing: rows in order of first appearance. */
typedef bool bench_same(const bench_row *a, const bench_row *b);
bench_same bench_same_collective, bench_same_table, bench_same_series;
/* Is row i the first of its kind? */
bool bench_is_first(const bench_rows *rows, int i, bench_same *same);

#endif
