/* bench_report.h -- how benchmarks report: rows of (name, ours, peer), one table, one JSON array.
 *
 *     int main(int argc, char **argv)
 *     {
 *         bench_begin(argc, argv);
 *         bench_row("gemm f32 512x512x512 vs oneDNN", ours_gflops, peer_gflops, "GFLOP/s", true);
 *         return bench_end();
 *     }
 *
 * ratio > 1 means that ours is better, whichever direction that is; a peer of 0 or less means
 * "measured without one", and then peer and ratio are null. The name holds all that varies: model,
 * precision, size, peer. With --json FILE (make bench JSON=FILE) the rows are added to the array in
 * FILE, so that several programs in turn give one array; make bench starts with a fresh file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BENCH_REPORT_H
#define TD_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

/* Reads --json FILE and --filter TEXT from the command line; ends the program on anything else. */
void bench_begin(int argc, char **argv);

/* Is a row of this name wanted (--filter)? Ask before measuring. */
bool bench_wanted(const char *name);

/* Report one measurement: prints it at once, keeps it for bench_end. */
void bench_row(const char *name, double ours, double peer, const char *unit, bool higher_is_better);

/* Write the JSON; returns the program's exit status. */
int bench_end(void);

/* Monotonic time in nanoseconds. */
int64_t bench_now_ns(void);

/* Best time of one call of fn(arg), in seconds: repeats until min_seconds have passed and at least
 * min_rounds rounds were made. The best, because on a shared machine only slowness is noise. */
double bench_best_seconds(void (*fn)(void *), void *arg, double min_seconds, int min_rounds);

#endif
