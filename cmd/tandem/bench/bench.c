/* bench.c -- `tandem bench comm`: what collectives cost here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "bench_comm.h"
#include "bench_rows.h"
#include "coll/algo.h"
#include "command.h"

/* "4,1K,16M"; false if it is no such list. */
static bool parse_sizes(const char *text, bench_plan *p)
{
    p->n_sizes = 0;
    for (const char *at = text; *at && p->n_sizes < BENCH_MOST_SIZES;) {
        char *end;
        unsigned long long n = strtoull(at, &end, 10);
        int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        end += shift > 0;
        if (end == at || (*end && *end != ',') || n == 0 || n > (UINT64_C(1) << 36) >> shift)
            return false;
        p->nbytes[p->n_sizes++] = (size_t)n << shift;
        at = end + (*end == ',');
    }
    return p->n_sizes > 0;
}

static int bad(const td__args *a, const char *what, const char *text)
{
    return td__usage_error(a, "%s: invalid list %s; see tandem help bench", what, text);
}

/* Words that a list may have, i = 0, 1, ...; NULL after the last. */
static const char *transport_word(int i)
{
    static const char *const WORDS[] = {"shm", "tcp", NULL};
    return WORDS[i];
}

static const char *memory_word(int i)
{
    static const char *const WORDS[] = {"registered", "private", NULL};
    return WORDS[i];
}

static const char *collective_word(int i)
{
    return i == 0 ? "all" : i <= TD_COLL_COUNT ? td__coll_name((td__coll)(i - 1)) : NULL;
}

static const char *algorithm_word(int i)
{
    static const char *const WORDS[] = {"all", "default", "shm"};
    if (i < TD_LEN(WORDS))
        return WORDS[i];
    const td__algo *algo = td__algo_at(i - TD_LEN(WORDS));
    return algo ? algo->name : NULL;
}

/* Is every word of the list known? If not, says which is not. */
static bool known(const td__args *a, const char *flag, const char *list, const char *(*word)(int i))
{
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        bool found = false;
        for (int i = 0; !found && word(i); i++)
            found = strlen(word(i)) == n && memcmp(word(i), at, n) == 0;
        if (!found) {
            td__usage_error(a, "--%s: unknown word '%.*s'; see tandem help bench", flag,
                            (int)(n < 64 ? n : 64), at);
            return false;
        }
        at += n + (at[n] == ',');
    }
    if (!*list)
        td__usage_error(a, "--%s: expected a list; see tandem help bench", flag);
    return *list != 0;
}

static bool read_file(const char *path, bench_rows *rows)
{
    char line[512];
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (fgets(line, sizeof line, f))
        if (line[0] != '\n' && !bench_rows_parse(rows, line)) {
            fclose(f);
            return false;
        }
    return fclose(f) == 0;
}

static bool write_file(const char *path, const bench_rows *rows)
{
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < rows->count; i++)
        bench_rows_write(&rows->row[i], f);
    return f && fclose(f) == 0;
}

static const char *or_else(const char *value, const char *otherwise)
{
    return value ? value : otherwise;
}

/* All numbers of ranks and all transports, one after the other. */
static int measure(const td__args *a, bench_plan *p, bench_rows *rows)
{
    static const char *const TRANSPORTS[] = {"shm", "tcp"};
    const char *ranks = or_else(td__args_value(a, "ranks"), "2,4");
    const char *transports = or_else(td__args_value(a, "transports"), "shm,tcp");
    for (const char *at = ranks; *at;) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || n < 1 || n > 64)
            return bad(a, "--ranks", ranks);
        for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
            if (!bench_listed(transports, TRANSPORTS[t]))
                continue;
            p->ranks = (int)n;
            p->transport = TRANSPORTS[t];
            td_status st = bench_comm_measure(p, rows, td__args_has(a, "verbose") ? stderr : NULL);
            if (st)
                return td__failure(a, st);
        }
        at = end + (*end == ',');
    }
    return TD_EXIT_OK;
}

static int run(const td__args *a)
{
    bench_plan p = {
        .collectives = or_else(td__args_value(a, "collectives"), "all"),
        .algorithms = or_else(td__args_value(a, "algorithms"), "all"),
        .memory = or_else(td__args_value(a, "memory"), "registered,private"),
    };
    const char *sizes = or_else(td__args_value(a, "sizes"), "4,64,1K,16K,256K,1M,4M,16M");
    const char *svg = td__args_value(a, "svg"), *file = td__args_value(a, "rows");
    const char *const *also;
    int n_also = td__args_values(a, "also", &also), status = TD_EXIT_OK;
    long ms;
    bench_rows rows = {0};
    if (strcmp(td__args_at(a, 0), "comm") != 0)
        return td__usage_error(a, "unknown benchmark '%.64s'; known: comm", td__args_at(a, 0));
    if (!known(a, "transports", or_else(td__args_value(a, "transports"), "shm"), transport_word) ||
        !known(a, "collectives", p.collectives, collective_word) ||
        !known(a, "algorithms", p.algorithms, algorithm_word) ||
        !known(a, "memory", p.memory, memory_word))
        return TD_EXIT_USAGE;
    if (!parse_sizes(sizes, &p))
        return bad(a, "--sizes", sizes);
    if (!td__args_int(a, "ms", 1, 100000, 100, &ms))
        return TD_EXIT_USAGE;
    p.seconds = 1e-3 * (double)ms;
    if (!td__args_has(a, "no-run"))
        status = measure(a, &p, &rows);
    for (int i = 0; !status && i < n_also; i++)
        if (!read_file(also[i], &rows))
            status = td__usage_error(a, "%s is not a file of measurements", also[i]);
    if (!status && !td__args_has(a, "quiet"))
        bench_rows_print(&rows, stdout);
    if (!status && file && !write_file(file, &rows))
        status = td__usage_error(a, "cannot write %s", file);
    if (!status && svg && !bench_rows_draw(&rows, "Collectives on one host", svg))
        status = td__usage_error(a, "cannot write %s", svg);
    bench_rows_fini(&rows);
    return status;
}

static const td__flag FLAGS[] = {
    {"ranks", 'n', "LIST", "numbers of ranks to measure; 2,4", NULL},
    {"collectives", 'c', "LIST", "collectives to measure; all",
     "all allreduce reduce broadcast reduce_scatter all_gather all_to_all gather scatter barrier"},
    {"algorithms", 'a', "LIST", "algorithms to measure, or 'default' for the library's choice; all",
     "all default shm direct ring tree star butterfly"},
    {"transports", 't', "LIST", "transports; shm,tcp", "shm tcp shm,tcp"},
    {"memory", 'm', "LIST", "shared (registered) or private buffers; registered,private",
     "registered private registered,private"},
    {"sizes", 's', "LIST", "bytes: 4,1K,16M", NULL},
    {"ms", 0, "N", "milliseconds per measurement; 100", NULL},
    {"rows", 'o', "FILE", "also write the measurements to FILE, one line each", "FILE"},
    {"also", 0, "FILE", "also show the measurements in FILE; may be given several times", "FILE"},
    {"svg", 0, "FILE", "draw the measurements", "FILE"},
    {"no-run", 0, NULL, "measure nothing; show the files of --also", NULL},
    {"quiet", 'q', NULL, "print no tables", NULL},
    {"verbose", 'v', NULL, "print what is being measured", NULL},
    {NULL, 0, NULL, NULL, NULL},
};

static const char *const EXAMPLES[] = {
    "tandem bench comm",
    "every collective, algorithm and transport, with 2 and with 4 ranks",
    "tandem bench comm -n 2 -c allreduce -a default -s 4,1K,1M --svg comm.svg",
    "the allreduce of a training step, as a table and a chart",
    NULL,
};

const td__command td__command_bench = {
    .name = "bench",
    .args = "comm",
    .summary = "measure collectives: latency and bandwidth",
    .text =
        "Starts ranks as processes on this machine and measures collectives among them, for "
        "every algorithm and transport: each rank rewrites its buffer, a barrier, one call; the "
        "time is from the last rank's start to the last rank's end, the median over many calls. "
        "Tables show microseconds and gigabytes per second over the bytes of a rank's largest "
        "buffer.\n\n"
        "Files of --rows have one measurement per line, separated by tabs: program, collective, "
        "algorithm, ranks, bytes, median, tenth and ninetieth percentile in microseconds. "
        "Numbers of other programs in that form can be compared with --also; make bench-comm "
        "does so with Open MPI and gloo.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
