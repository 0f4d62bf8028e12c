/* resident.c -- giving memory back; see resident.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "resident.h"

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FIRST_MS = 1000, EVERY_MS = 30000, HEAPS = 2, LARGE = 128 << 10, SPANS = 256 };

void td__resident_limit(void)
{
    mallopt(M_ARENA_MAX, HEAPS);
    mallopt(M_MMAP_THRESHOLD, LARGE); /* otherwise it grows with what is freed */
    mallopt(M_TRIM_THRESHOLD, LARGE);
}

typedef struct span {
    uintptr_t from, to;
} span;

/* The pages of a segment; those that it shares with what follows only with `shared`. */
static span pages(const struct dl_phdr_info *o, const ElfW(Phdr) * p, bool shared)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = o->dlpi_addr + p->p_vaddr;

    return (span){from & ~(page - 1), (from + p->p_memsz + (shared ? page - 1 : 0)) & ~(page - 1)};
}

static bool code_was_relocated(const struct dl_phdr_info *o)
{
    for (int i = 0; i < o->dlpi_phnum; i++)
        if (o->dlpi_phdr[i].p_type == PT_DYNAMIC)
            for (const ElfW(Dyn) *d = (const void *)(o->dlpi_addr + o->dlpi_phdr[i].p_vaddr);
                 d->d_tag != DT_NULL; d++)
                if (d->d_tag == DT_TEXTREL || (d->d_tag == DT_FLAGS && d->d_un.d_val & DF_TEXTREL))
                    return true;
    return false;
}

typedef struct spans {
    span s[SPANS];
    int n;
} spans;

/* Adds the object's segments that are equal to its file, and so can be dropped and read again.
 * Relocated segments are not, even if they have been made read-only since. */
static int find_clean(struct dl_phdr_info *o, size_t nbytes, void *arg)
{
    spans *all = arg;

    (void)nbytes;
    if (code_was_relocated(o))
        return 0;
    for (int i = 0; i < o->dlpi_phnum && all->n < SPANS; i++) {
        const ElfW(Phdr) *p = &o->dlpi_phdr[i];

        if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && p->p_memsz == p->p_filesz)
            all->s[all->n++] = pages(o, p, true);
    }
    return 0;
}

/* All are found first: looking for them would bring back some that are dropped. */
static void drop(td__resident *r)
{
    spans all;

    all.n = 0; /* the rest is not touched */
    dl_iterate_phdr(find_clean, &all);
    if (r->tables)
        madvise(r->tables, r->tables_size, MADV_DONTNEED); /* a wish, as below */
    for (int i = 0; i < all.n; i++)
        madvise((void *)all.s[i].from, all.s[i].to - all.s[i].from, MADV_DONTNEED);
}

/* ---- relocated tables ---- */

static bool write_all(int fd, const void *bytes, size_t nbytes)
{
    for (size_t at = 0; at < nbytes;) {
        ssize_t n = pwrite(fd, (const char *)bytes + at, nbytes - at, (off_t)at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Puts a file without a name in the place of the program's relocated read-only tables, most of
 * which a service never reads: they can then be dropped like code. Only of the first object, which
 * is the program. */
static int keep_tables(struct dl_phdr_info *o, size_t nbytes, void *arg)
{
    td__resident *r = arg;

    (void)nbytes;
    for (int i = 0; i < o->dlpi_phnum; i++) {
        if (o->dlpi_phdr[i].p_type != PT_GNU_RELRO)
            continue;
        span s = pages(o, &o->dlpi_phdr[i], false);
        size_t size = s.to - s.from;
        int fd = open(r->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0 && size && write_all(fd, (const void *)s.from, size) &&
            mmap((void *)s.from, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED)
            r->tables = (void *)s.from, r->tables_size = size;
        if (fd >= 0)
            close(fd);
    }
    return 1;
}

static void on_time(void *arg)
{
    td__resident *r = arg;

    r->due = true;
    td__timer_start(r->loop, &r->timer, td__deadline_in_ms(EVERY_MS));
}

/* The last thing in a turn: what other hooks run would come back. */
static void on_turn_end(void *arg)
{
    td__resident *r = arg;

    if (!r->due)
        return;
    r->due = false;
    malloc_trim(0);
    drop(r);
}

void td__resident_start(td__resident *r, td__loop *loop, const char *dir)
{
    *r = (td__resident){.loop = loop,
                        .dir = dir,
                        .timer = {.due = on_time, .arg = r},
                        .turn_end = {.run = on_turn_end, .arg = r}};
    dl_iterate_phdr(keep_tables, r);
    td__loop_hook(loop, TD_TURN_SEND, &r->turn_end);
    td__timer_start(loop, &r->timer, td__deadline_in_ms(FIRST_MS));
}

void td__resident_stop(td__resident *r)
{
    if (!r->loop)
        return;
    td__loop_unhook(r->loop, TD_TURN_SEND, &r->turn_end);
    td__timer_stop(r->loop, &r->timer);
}
