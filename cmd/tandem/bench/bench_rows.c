/* bench_rows.c -- measurements as lines and tables. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_rows.h"

#include <stdlib.h>
#include <string.h>

bool bench_rows_add(bench_rows *rows, const bench_row *row)
{
    if (rows->count == rows->room) {
        int room = rows->room ? 2 * rows->room : 256;
        bench_row *more = realloc(rows->row, (size_t)room * sizeof *more);
        if (!more)
            return false;
        rows->row = more;
        rows->room = room;
    }
    rows->row[rows->count++] = *row;
    return true;
}

bool bench_rows_parse(bench_rows *rows, const char *line)
{
    bench_row r;
    int n = sscanf(line, "%47[^\t]\t%47[^\t]\t%47[^\t]\t%d\t%zu\t%lf\t%lf\t%lf", r.who,
                   r.collective, r.algorithm, &r.ranks, &r.nbytes, &r.us, &r.low, &r.high);
    return n == 8 && r.ranks > 0 && r.us > 0 && bench_rows_add(rows, &r);
}

void bench_rows_write(const bench_row *r, FILE *to)
{
    fprintf(to, "%s\t%s\t%s\t%d\t%zu\t%.3f\t%.3f\t%.3f\n", r->who, r->collective, r->algorithm,
            r->ranks, r->nbytes, r->us, r->low, r->high);
}

void bench_rows_fini(bench_rows *rows)
{
    free(rows->row);
    *rows = (bench_rows){0};
}

const char *bench_size_text(size_t nbytes, char buf[16])
{
    static const char *const UNIT[] = {"B", "KB", "MB", "GB"};
    size_t n = nbytes;
    int u = 0;
    while (u < 3 && n >= 1024 && n % 1024 == 0) {
        n /= 1024;
        u++;
    }
    snprintf(buf, 16, "%zu %s", n, UNIT[u]);
    return buf;
}

bool bench_same_collective(const bench_row *a, const bench_row *b)
{
    return strcmp(a->collective, b->collective) == 0;
}

bool bench_same_table(const bench_row *a, const bench_row *b)
{
    return a->ranks == b->ranks && bench_same_collective(a, b);
}

bool bench_same_series(const bench_row *a, const bench_row *b)
{
    return strcmp(a->who, b->who) == 0 && strcmp(a->algorithm, b->algorithm) == 0;
}

bool bench_is_first(const bench_rows *rows, int i, bench_same *same)
{
    for (int k = 0; k < i; k++)
        if (same(&rows->row[k], &rows->row[i]))
            return false;
    return true;
}

static bool same_size_and_table(const bench_row *a, const bench_row *b)
{
    return a->nbytes == b->nbytes && bench_same_table(a, b);
}

static bool same_series_and_table(const bench_row *a, const bench_row *b)
{
    return bench_same_series(a, b) && bench_same_table(a, b);
}

/* Four characters of sense: 0.41, 12.3, 1234. */
static void print_number(double v, FILE *to)
{
    fprintf(to, v < 10 ? " %8.2f" : v < 100 ? " %8.1f" : " %8.0f", v);
}

static const bench_row *find(const bench_rows *rows, const bench_row *series, size_t nbytes)
{
    for (int i = 0; i < rows->count; i++)
        if (same_series_and_table(&rows->row[i], series) && rows->row[i].nbytes == nbytes)
            return &rows->row[i];
    return NULL;
}

static void print_table(const bench_rows *rows, const bench_row *head, bool bandwidth, FILE *to)
{
    char size[16];
    fprintf(to, "\n%s, %d ranks, %s\n%-24s %-16s", head->collective, head->ranks,
            bandwidth ? "GB/s" : "us (median)", "", "");
    for (int i = 0; i < rows->count; i++)
        if (bench_same_table(&rows->row[i], head) && bench_is_first(rows, i, same_size_and_table))
            fprintf(to, " %8s", bench_size_text(rows->row[i].nbytes, size));
    fputc('\n', to);
    for (int i = 0; i < rows->count; i++) {
        const bench_row *series = &rows->row[i];
        if (!bench_same_table(series, head) || !bench_is_first(rows, i, same_series_and_table))
            continue;
        fprintf(to, "%-24s %-16s", series->who, series->algorithm);
        for (int k = 0; k < rows->count; k++) {
            if (!bench_same_table(&rows->row[k], head) ||
                !bench_is_first(rows, k, same_size_and_table))
                continue;
            const bench_row *r = find(rows, series, rows->row[k].nbytes);
            if (r)
                print_number(bandwidth ? (double)r->nbytes / r->us * 1e-3 : r->us, to);
            else
                fprintf(to, " %8s", "-");
        }
        fputc('\n', to);
    }
}

void bench_rows_print(const bench_rows *rows, FILE *to)
{
    for (int i = 0; i < rows->count; i++) {
        if (!bench_is_first(rows, i, bench_same_table))
            continue;
        print_table(rows, &rows->row[i], false, to);
        if (strcmp(rows->row[i].collective, "barrier") != 0)
            print_table(rows, &rows->row[i], true, to);
    }
}
