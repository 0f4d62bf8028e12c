/* bench_report.c -- see bench_report.h.
 *
 * The JSON file is read, extended and replaced as a whole: jansson does both directions, and a file
 * that is not an array is an error rather than something to be overwritten. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_report.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *json_path;
static const char *filter;
static json_t *rows;

void bench_begin(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json") && i + 1 < argc) {
            json_path = argv[++i];
        } else if (!strcmp(argv[i], "--filter") && i + 1 < argc) {
            filter = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--json FILE] [--filter TEXT]\n", argv[0]);
            exit(2);
        }
    }
    rows = json_array();
    printf("%-56s %12s %12s %8s %s\n", "name", "ours", "peer", "ratio", "unit");
}

bool bench_wanted(const char *name)
{
    return !filter || strstr(name, filter);
}

void bench_row(const char *name, double ours, double peer, const char *unit, bool higher_is_better)
{
    bool has_peer = isfinite(peer) && peer > 0 && isfinite(ours) && ours > 0;
    double ratio = !has_peer ? 0 : higher_is_better ? ours / peer : peer / ours;
    char peer_text[32] = "-", ratio_text[32] = "-";

    if (has_peer) {
        snprintf(peer_text, sizeof peer_text, "%.4g", peer);
        snprintf(ratio_text, sizeof ratio_text, "%.2f", ratio);
    }
    printf("%-56s %12.4g %12s %8s %s\n", name, ours, peer_text, ratio_text, unit);
    fflush(stdout);
    json_array_append_new(rows, json_pack("{s:s, s:f, s:o, s:o, s:s}", "name", name, "ours", ours,
                                          "peer", has_peer ? json_real(peer) : json_null(), "ratio",
                                          has_peer ? json_real(ratio) : json_null(), "unit", unit));
}

static int write_json(void)
{
    json_error_t error;
    json_t *all = NULL;

    if (access(json_path, F_OK) == 0) {
        all = json_load_file(json_path, 0, &error);
        if (!json_is_array(all)) {
            fprintf(stderr, "%s is not a JSON array; left as it is\n", json_path);
            json_decref(all);
            return 1;
        }
    } else {
        all = json_array();
    }
    int failed = json_array_extend(all, rows) ||
                 json_dump_file(all, json_path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(all);
    if (failed)
        fprintf(stderr, "could not write %s\n", json_path);
    return failed ? 1 : 0;
}

int bench_end(void)
{
    int status = json_path ? write_json() : 0;

    json_decref(rows);
    rows = NULL;
    return status;
}

int64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double bench_best_seconds(void (*fn)(void *), void *arg, double min_seconds, int min_rounds)
{
    int64_t begin = bench_now_ns(), best = INT64_MAX;

    for (int round = 0; round < min_rounds || (double)(bench_now_ns() - begin) < min_seconds * 1e9;
         round++) {
        int64_t t = bench_now_ns();
        fn(arg);
        t = bench_now_ns() - t;
        best = t < best ? t : best;
    }
    return (double)best * 1e-9;
}
