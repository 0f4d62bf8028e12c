/* world_env.c -- who am I? The world as the environment describes it.
 *
 * Each launcher has a family of variables: rank, size, local rank, local size. The first family
 * that is set counts, and any other that is set must agree with it: two launchers that contradict
 * each other (an mpirun inside a rank of another launcher) are refused rather than guessed at.
 * Slurm's variables describe the allocation, so they give way to any other family, and mean
 * nothing in a batch script, where srun has started nobody yet.
 *
 * `tandem launch` also says where the store is and which file holds the secret. Other launchers do
 * not: their ranks meet through a file that rank 0 writes in a folder of the user (mode 0700),
 * named after the launcher's process. On several hosts they need help: TANDEM_STORE with
 * TANDEM_SECRET_FILE, or a shared folder TANDEM_RENDEZVOUS. Where members are containers, which
 * share no files, TANDEM_SECRET has the secret and TANDEM_STORE_RANK says which of them serves the
 * store, at the address that TANDEM_STORE has told all of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/sha256.h"
#include "coll/comm_setup.h"

enum { MAX_RANKS = 1 << 20, SECRET_BYTES = sizeof(td__secret) };

typedef struct family {
    td__env rank, size, local_rank, local_size; /* TD_ENV_COUNT: has none */
    bool mpi;
} family;

static const family FAMILIES[] = {
    {TD_ENV_RANK, TD_ENV_SIZE, TD_ENV_LOCAL_RANK, TD_ENV_LOCAL_SIZE, false},
    {TD_ENV_OMPI_RANK, TD_ENV_OMPI_SIZE, TD_ENV_OMPI_LOCAL_RANK, TD_ENV_OMPI_LOCAL_SIZE, true},
    {TD_ENV_PMI_RANK, TD_ENV_PMI_SIZE, TD_ENV_PMI_LOCAL_RANK, TD_ENV_PMI_LOCAL_SIZE, true},
    {TD_ENV_TORCH_RANK, TD_ENV_TORCH_SIZE, TD_ENV_TORCH_LOCAL_RANK, TD_ENV_TORCH_LOCAL_SIZE, false},
    {TD_ENV_SLURM_RANK, TD_ENV_SLURM_SIZE, TD_ENV_SLURM_LOCAL_RANK, TD_ENV_COUNT, false},
};

static td_status whole_number(td__env var, int lo, int hi, int *out)
{
    const char *text = td__env_get(var);
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || *end || v < lo || v > hi)
        return TD_FAIL(TD_EINVAL, "%s is \"%s\", not a whole number from %d to %d",
                       td__env_name(var), text, lo, hi);
    *out = (int)v;
    return TD_OK;
}

/* *found: this family is set. */
static td_status read_family(const family *f, td__world *w, bool *found)
{
    *found = td__env_get(f->rank) || td__env_get(f->size);
    if (!*found)
        return TD_OK;
    td__env missing = td__env_get(f->rank) ? f->size : f->rank;
    if (!td__env_get(missing))
        return TD_FAIL(TD_EINVAL, "%s is set but %s is not: set both or none",
                       td__env_name(missing == f->size ? f->rank : f->size), td__env_name(missing));
    TD_TRY(whole_number(f->size, 1, MAX_RANKS, &w->size));
    TD_TRY(whole_number(f->rank, 0, w->size - 1, &w->rank));
    w->local_rank = w->local_size = -1;
    if (f->local_size != TD_ENV_COUNT && td__env_get(f->local_size))
        TD_TRY(whole_number(f->local_size, 1, w->size, &w->local_size));
    if (td__env_get(f->local_rank)) {
        int most = w->local_size > 0 ? w->local_size : w->size;
        TD_TRY(whole_number(f->local_rank, 0, most - 1, &w->local_rank));
    }
    w->mpi = f->mpi;
    return TD_OK;
}

static bool is_slurm(const family *f)
{
    return f->rank == TD_ENV_SLURM_RANK;
}

/* The first family that is set. NULL: none is. */
static td_status choose_family(td__world *w, const family **chosen)
{
    *chosen = NULL;
    for (int i = 0; i < TD_LEN(FAMILIES); i++) {
        const family *f = &FAMILIES[i];
        if (is_slurm(f) &&
            (*chosen || (td__env_get(TD_ENV_SLURM_JOB) && !td__env_get(TD_ENV_SLURM_STEP))))
            continue;
        td__world one = {0};
        bool found;
        TD_TRY(read_family(f, &one, &found));
        if (!found)
            continue;
        if (!*chosen) {
            *chosen = f;
            w->rank = one.rank, w->size = one.size, w->mpi = one.mpi;
            w->local_rank = one.local_rank, w->local_size = one.local_size;
        } else if (one.rank != w->rank || one.size != w->size) {
            return TD_FAIL(
                TD_EINVAL,
                "the environment has two launchers: %s=%d of %d, but %s=%d of %d; unset one of "
                "them",
                td__env_name((*chosen)->rank), w->rank, w->size, td__env_name(f->rank), one.rank,
                one.size);
        }
    }
    return TD_OK;
}

/* The first `max - 1` bytes of a small file, as text; "" if it cannot be read. */
static size_t read_some(const char *path, char *text, size_t max)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n < max - 1) {
        ssize_t got = read(fd, text + n, max - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    text[n] = 0;
    return n;
}

/* Ranks share memory if they run under one kernel and see one another's processes, sockets and
 * memory: all of these namespaces must be the same. */
static td_status identify_host(td__world *w)
{
    static const char *const NAMESPACES[] = {"ipc", "net", "user", "pid"};
    if (gethostname(w->hostname, sizeof w->hostname - 1) || !w->hostname[0])
        snprintf(w->hostname, sizeof w->hostname, "localhost");
    const char *given = td__env_get(TD_ENV_HOST);
    if (given) {
        if (strlen(given) >= sizeof w->host)
            return TD_FAIL(TD_EINVAL, "%s is longer than %zu bytes", td__env_name(TD_ENV_HOST),
                           sizeof w->host - 1);
        snprintf(w->host, sizeof w->host, "%s", given);
        snprintf(w->hostname, sizeof w->hostname, "%s", given);
        return TD_OK;
    }
    char text[512], link[64], path[32];
    size_t n = read_some("/proc/sys/kernel/random/boot_id", text, 64);
    for (int i = 0; i < TD_LEN(NAMESPACES); i++) {
        snprintf(path, sizeof path, "/proc/self/ns/%s", NAMESPACES[i]);
        ssize_t got = readlink(path, link, sizeof link);
        if (got > 0) {
            memcpy(text + n, link, (size_t)got);
            n += (size_t)got;
        }
    }
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX];
    TD_TRY(td__sha256_of(text, n, digest));
    td__sha256_hex(digest, hex);
    snprintf(w->host, sizeof w->host, "%.32s", hex);
    return TD_OK;
}

td_status td__secret_parse(const char *hex, td__secret *out)
{
    for (int i = 0; i < SECRET_BYTES; i++) {
        unsigned v = 0;
        for (int k = 0; k < 2; k++) {
            char c = hex[2 * i + k];
            if (c >= '0' && c <= '9')
                v = v * 16 + (unsigned)(c - '0');
            else if (c >= 'a' && c <= 'f')
                v = v * 16 + (unsigned)(c - 'a') + 10;
            else
                return TD_FAIL(TD_EINVAL, "the secret is not %d hexadecimal digits",
                               2 * SECRET_BYTES);
        }
        out->bytes[i] = (uint8_t)v;
    }
    return TD_OK;
}

void td__secret_hex(const td__secret *s, char hex[TD_SECRET_HEX])
{
    for (int i = 0; i < SECRET_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", s->bytes[i]);
}

/* A secret that others can read is none. */
static td_status read_secret(const char *path, td__secret *out)
{
    struct stat st;
    char hex[TD_SECRET_HEX];
    const char *var = td__env_name(TD_ENV_SECRET_FILE);
    if (stat(path, &st))
        return TD_FAIL(TD_EINVAL, "%s: cannot read %s: %s", var, path, strerror(errno));
    if ((st.st_mode & 077) || (st.st_uid != geteuid() && geteuid() != 0))
        return TD_FAIL(TD_EINVAL, "%s: %s must belong to you and have mode 0600", var, path);
    read_some(path, hex, sizeof hex);
    td_status status = td__secret_parse(hex, out);
    explicit_bzero(hex, sizeof hex);
    return status;
}

/* Field 4 (parent) and 22 (start time) of /proc/PID/stat. */
static bool process_stat(long pid, long *parent, unsigned long long *start)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_some(path, text, sizeof text);
    const char *p = strrchr(text, ')'); /* the name before it may hold anything */
    return p && sscanf(p + 1,
                       " %*c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                       "%*s %llu",
                       parent, start) == 2;
}

/* Does the process carry the variable? A wrapper script does, the launcher does not. */
static bool process_has(long pid, const char *var)
{
    enum { MOST = 1 << 20 };
    char path[40];
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    char *text = td__malloc(MOST);
    size_t n = text ? read_some(path, text, MOST) : 0, length = strlen(var);
    bool found = false;
    for (size_t at = 0; at < n && !found; at += strlen(text + at) + 1)
        found = !strncmp(text + at, var, length) && text[at + length] == '=';
    td__free(text);
    return found;
}

/* The launcher: the nearest ancestor that was not told a rank. All ranks of one launch on one host
 * have the same; its start time tells it from another process that once had its number. */
static void find_launcher(const char *rank_var, long *pid, unsigned long long *start)
{
    long at = getpid(), parent;
    *pid = 0, *start = 0;
    while (process_stat(at, &parent, start) && at != 1) {
        *pid = at;
        if (at != getpid() && !process_has(at, rank_var))
            return;
        at = parent;
    }
}

/* A folder of the user that nobody else can enter. */
static td_status private_folder(char *out, size_t max)
{
    const char *base = td__env_get(TD_ENV_RUNTIME_DIR);
    struct stat st;
    if (base && (stat(base, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid()))
        base = NULL;
    int n = base ? snprintf(out, max, "%s/tandem", base)
                 : snprintf(out, max, "/tmp/tandem-%u", (unsigned)geteuid());
    if (n < 0 || (size_t)n >= max)
        return TD_FAIL(TD_EINVAL, "%s is too long", td__env_name(TD_ENV_RUNTIME_DIR));
    if (mkdir(out, 0700) && errno != EEXIST)
        return TD_FAIL(TD_EIO, "cannot create %s: %s", out, strerror(errno));
    if (lstat(out, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return TD_FAIL(TD_EIO, "%s is not a directory of yours with mode 0700; remove it", out);
    return TD_OK;
}

/* Where ranks meet that have no store. */
static td_status choose_meeting(td__world *w, const family *f)
{
    const char *shared = td__env_get(TD_ENV_RENDEZVOUS), *job = td__env_get(TD_ENV_JOB);
    char folder[160];
    int n;
    if (shared) { /* hosts have launchers of their own: only a name from outside is common to all */
        if (!job)
            job = td__env_get(TD_ENV_SLURM_JOB);
        n = snprintf(w->meeting, sizeof w->meeting, "%s/tandem-%u-%.80s", shared,
                     (unsigned)geteuid(), job ? job : "job");
    } else {
        if (w->local_size > 0 && w->local_size < w->size)
            return TD_FAIL(TD_EINVAL,
                           "%d ranks on several hosts without a rendezvous: start them with tandem "
                           "launch, or set %s and %s, or %s to a directory all hosts share",
                           w->size, td__env_name(TD_ENV_STORE), td__env_name(TD_ENV_SECRET_FILE),
                           td__env_name(TD_ENV_RENDEZVOUS));
        TD_TRY(private_folder(folder, sizeof folder));
        long pid;
        unsigned long long start;
        find_launcher(td__env_name(f->rank), &pid, &start);
        n = snprintf(w->meeting, sizeof w->meeting, "%s/meet-%ld-%llu", folder, pid, start);
    }
    if (n < 0 || (size_t)n >= sizeof w->meeting)
        return TD_FAIL(TD_EINVAL, "%s is too long", td__env_name(TD_ENV_RENDEZVOUS));
    return TD_OK;
}

static td_status copy_text(td__env var, char *out, size_t max)
{
    const char *text = td__env_get(var);
    if (!text)
        return TD_OK;
    if (strlen(text) >= max)
        return TD_FAIL(TD_EINVAL, "%s is longer than %zu bytes", td__env_name(var), max - 1);
    snprintf(out, max, "%s", text);
    return TD_OK;
}

td_status td__world_from_env(td__world *out)
{
    td__world w = {.size = 1, .local_size = 1, .address = "127.0.0.1"};
    const family *f;
    TD_TRY(choose_family(&w, &f));
    TD_TRY(identify_host(&w));
    TD_TRY(copy_text(TD_ENV_ADDRESS, w.address, sizeof w.address));
    TD_TRY(copy_text(TD_ENV_TLS_DIR, w.tls_dir, sizeof w.tls_dir));
    w.tls = w.tls_dir[0] != 0;
    TD_TRY(copy_text(TD_ENV_AGENT, w.agent, sizeof w.agent));
    if (w.agent[0]) {
        int proc;
        const char *secret = td__env_get(TD_ENV_SECRET_FILE);
        if (!secret || !td__env_get(TD_ENV_PROC))
            return TD_FAIL(TD_EINVAL, "%s is set but %s or %s is not", td__env_name(TD_ENV_AGENT),
                           td__env_name(TD_ENV_SECRET_FILE), td__env_name(TD_ENV_PROC));
        TD_TRY(whole_number(TD_ENV_PROC, 0, INT_MAX, &proc));
        w.proc = (uint32_t)proc;
        w.elastic = !td__env_get(TD_ENV_RANK);
        td_status st = read_secret(secret, &w.secret);
        if (st && w.elastic)
            return st;
        if (st) /* as inside a container: a fixed rank can do without its agent */
            w.agent[0] = 0;
    }
    if (w.size > 1 && !w.elastic) {
        TD_TRY(copy_text(TD_ENV_STORE, w.store, sizeof w.store));
        const char *secret = td__env_get(TD_ENV_SECRET_FILE), *hex = td__env_get(TD_ENV_SECRET);
        if (w.store[0] && !secret && !hex)
            return TD_FAIL(TD_EINVAL, "%s is set but %s is not: connections need the secret",
                           td__env_name(TD_ENV_STORE), td__env_name(TD_ENV_SECRET_FILE));
        /* Ranks of several hosts: the address is found when there is somebody to reach. */
        w.route = !td__env_get(TD_ENV_ADDRESS) && w.local_size != w.size &&
                  (w.store[0] || td__env_get(TD_ENV_RENDEZVOUS));
        if (w.store[0] && hex && strlen(hex) != TD_SECRET_HEX - 1)
            return TD_FAIL(TD_EINVAL, "%s: the secret is not %d hexadecimal digits",
                           td__env_name(TD_ENV_SECRET), TD_SECRET_HEX - 1);
        if (w.store[0] && td__env_get(TD_ENV_STORE_RANK)) {
            int server;
            TD_TRY(whole_number(TD_ENV_STORE_RANK, 0, w.size - 1, &server));
            w.server = server + 1;
        }
        if (w.store[0])
            TD_TRY(hex ? td__secret_parse(hex, &w.secret) : read_secret(secret, &w.secret));
        else
            TD_TRY(choose_meeting(&w, f));
    }
    *out = w;
    return TD_OK;
}
