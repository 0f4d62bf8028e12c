/* mpi_program.c -- see mpi_program.h. Reads which libraries a 64-bit ELF file needs: its dynamic
 * section lists them as offsets into a table of texts. No offset is believed before it is held
 * against the file's size. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi_program.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/file.h"

enum { MOST_PATH = 4096 };

/* As execvp finds it. */
static bool find_program(const char *program, char path[MOST_PATH])
{
    const char *dirs = getenv("PATH");

    if (strchr(program, '/') || !dirs)
        return snprintf(path, MOST_PATH, "%s", program) < MOST_PATH;
    while (*dirs) {
        int n = (int)strcspn(dirs, ":");
        if (snprintf(path, MOST_PATH, "%.*s/%s", n, dirs, program) < MOST_PATH &&
            access(path, X_OK) == 0)
            return true;
        dirs += n + (dirs[n] == ':');
    }
    return false;
}

/* Where in the file what is loaded at `address` stands; SIZE_MAX: nowhere. */
static size_t offset_of(const td__file_map *m, const Elf64_Ehdr *h, uint64_t address)
{
    for (int i = 0; i < h->e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, m->data + h->e_phoff + (size_t)i * sizeof p, sizeof p);
        if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
            return (size_t)(p.p_offset + (address - p.p_vaddr));
    }
    return SIZE_MAX;
}

static bool is_mpi(const char *name)
{
    return strncmp(name, "libmpi.so", 9) == 0 || strncmp(name, "libmpich.so", 11) == 0 ||
           strncmp(name, "libmpi_", 7) == 0;
}

static bool find_needed(const td__file_map *m, const Elf64_Ehdr *h, const Elf64_Phdr *dynamic,
                        char *library, size_t nbytes)
{
    size_t n = dynamic->p_filesz / sizeof(Elf64_Dyn), texts = SIZE_MAX;
    Elf64_Dyn d;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            memcpy(&d, m->data + dynamic->p_offset + i * sizeof d, sizeof d);
            if (d.d_tag == DT_NULL)
                break;
            if (d.d_tag == DT_STRTAB)
                texts = offset_of(m, h, d.d_un.d_ptr);
            if (pass == 0 || d.d_tag != DT_NEEDED || texts >= m->nbytes ||
                d.d_un.d_val >= m->nbytes - texts)
                continue;
            const char *name = (const char *)m->data + texts + d.d_un.d_val;
            if (memchr(name, 0, m->nbytes - texts - d.d_un.d_val) && is_mpi(name)) {
                snprintf(library, nbytes, "%s", name);
                return true;
            }
        }
    return false;
}

static bool look_at(const td__file_map *m, char *library, size_t nbytes)
{
    Elf64_Ehdr h;
    Elf64_Phdr p;

    if (m->nbytes < sizeof h)
        return false;
    memcpy(&h, m->data, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_phentsize != sizeof p || h.e_phoff > m->nbytes ||
        h.e_phnum > (m->nbytes - h.e_phoff) / sizeof p)
        return false;
    for (int i = 0; i < h.e_phnum; i++) {
        memcpy(&p, m->data + h.e_phoff + (size_t)i * sizeof p, sizeof p);
        if (p.p_type == PT_DYNAMIC && p.p_offset <= m->nbytes &&
            p.p_filesz <= m->nbytes - p.p_offset)
            return find_needed(m, &h, &p, library, nbytes);
    }
    return false;
}

bool td__mpi_program(const char *program, char *library, size_t nbytes)
{
    char path[MOST_PATH];
    td__file_map m;

    if (!find_program(program, path) || td__file_map_open(&m, path))
        return false;
    bool found = look_at(&m, library, nbytes);
    td__file_map_close(&m);
    return found;
}

const char *td__mpi_framework(const char *library)
{
    bool mpich = strncmp(library, "libmpich", 8) == 0 || strcmp(library, "libmpi.so.12") == 0;
    return mpich ? "mpich" : "openmpi";
}

/* The name at the end of a path. */
static bool is_shell(const char *path, size_t nbytes)
{
    static const char *const SHELLS[] = {"sh",  "bash",    "dash", "ksh",
                                         "zsh", "taskset", "nice", "numactl"};
    const char *slash = memrchr(path, '/', nbytes), *name = slash ? slash + 1 : path;
    size_t n = nbytes - (size_t)(name - path);

    for (size_t i = 0; i < sizeof SHELLS / sizeof SHELLS[0]; i++)
        if (strlen(SHELLS[i]) == n && strncmp(name, SHELLS[i], n) == 0)
            return true;
    return false;
}

/* "#!/bin/sh -e", "#!/usr/bin/env bash" */
static bool is_shell_script(const td__file_map *m)
{
    const char *text = (const char *)m->data, *end = text + m->nbytes;

    if (m->nbytes < 3 || memcmp(text, "#!", 2) != 0)
        return false;
    for (text += 2; text < end && *text != '\n'; text++) {
        const char *word = text;
        while (text < end && *text != ' ' && *text != '\n')
            text++;
        if (is_shell(word, (size_t)(text - word)))
            return true;
        if (text == end || *text == '\n')
            break;
    }
    return false;
}

bool td__program_joins(const char *program)
{
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    const char *own = td__env_name(TD_ENV_AGENT); /* what a rank is told by */
    char path[MOST_PATH];
    td__file_map m;

    if (strncmp(name, "tandem", 6) == 0 || strcmp(name, "env") == 0 || is_shell(name, strlen(name)))
        return true;
    if (strncmp(name, "python", 6) == 0) /* which may be a script that finds the right one */
        return false;
    if (!find_program(program, path) || td__file_map_open(&m, path))
        return false;
    bool joins = is_shell_script(&m) || memmem(m.data, m.nbytes, own, strlen(own)) ||
                 memmem(m.data, m.nbytes, "libtandem.so", strlen("libtandem.so"));
    td__file_map_close(&m);
    return joins;
}
