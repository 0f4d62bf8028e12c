/* profile.c -- profile.txt: where the time of a step goes, by operator and by node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "run/run_dir.h"

static int by_time(const void *a, const void *b)
{
    const td_node_time *x = a, *y = b;
    if (x->total_ns != y->total_ns)
        return x->total_ns < y->total_ns ? 1 : -1;
    return strcmp(x->name ? x->name : "", y->name ? y->name : "");
}

static int by_op(const void *a, const void *b)
{
    const td_node_time *x = a, *y = b;
    int c = strcmp(x->op, y->op);
    return c ? c : strcmp(x->impl ? x->impl : "", y->impl ? y->impl : "");
}

static void print_table(td__text *t, const td_node_time *rows, int n, uint64_t total, bool nodes)
{
    td__text_printf(t, "%7s %12s %10s %12s  %-18s %-22s%s\n", "%", "total ms", "calls", "mean us",
                    "operator", "kernel", nodes ? " node" : "");
    for (int i = 0; i < n; i++) {
        const td_node_time *r = &rows[i];
        if (!r->calls)
            continue;
        td__text_printf(t, "%7.2f %12.3f %10" PRIu64 " %12.2f  %-18s %-22s%s%s\n",
                        total ? 100.0 * (double)r->total_ns / (double)total : 0,
                        (double)r->total_ns * 1e-6, r->calls,
                        (double)r->total_ns / (double)r->calls * 1e-3, r->op,
                        r->impl ? r->impl : "", nodes ? " " : "", nodes && r->name ? r->name : "");
    }
}

/* Neighbours with the same operator and kernel become one. */
static int merge(td_node_time *rows, int n)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (m && by_op(&rows[m - 1], &rows[i]) == 0) {
            rows[m - 1].calls += rows[i].calls;
            rows[m - 1].total_ns += rows[i].total_ns;
        } else {
            rows[m++] = rows[i];
        }
    }
    return m;
}

td_status td__profile_write(const char *dir, const td_node_time *times, int n)
{
    char path[TD__PATH];
    td__text t = {0};
    td__file_out f;
    uint64_t total = 0;

    TD_TRY(td__run_dir_path(dir, "profile.txt", path));
    td_node_time *rows = td__calloc((size_t)n + 1, sizeof *rows);
    if (!rows)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %d rows", path, n);
    for (int i = 0; i < n; i++) {
        rows[i] = times[i];
        total += times[i].total_ns;
    }
    qsort(rows, (size_t)n, sizeof *rows, by_op);
    int m = merge(rows, n);
    qsort(rows, (size_t)m, sizeof *rows, by_time);
    td__text_printf(&t, "Time of all compute threads in nodes: %.3f ms\n\nBy operator and kernel\n",
                    (double)total * 1e-6);
    print_table(&t, rows, m, total, false);
    for (int i = 0; i < n; i++)
        rows[i] = times[i];
    qsort(rows, (size_t)n, sizeof *rows, by_time);
    td__text_add(&t, "\nBy node\n");
    print_table(&t, rows, n, total, true);
    td__free(rows);

    td_status st = td__text_status(&t);
    if (!st)
        st = td__file_out_open(&f, path);
    if (!st) {
        td__file_out_write(&f, t.data, t.used);
        st = td__file_out_commit(&f);
    }
    td__text_fini(&t);
    return st;
}
