/* tree_write.c -- a tree as YAML that parses to the same tree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "job/tree.h"

/* May the text stand without quotes, also inside [] and {}? */
static bool is_plain(const char *s)
{
    if (!*s || !strcmp(s, "~") || !strcmp(s, "null") || !strncmp(s, "- ", 2) || !strcmp(s, "-") ||
        !strcmp(s, "---") || !strcmp(s, "..."))
        return false;
    for (const char *p = s; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
              strchr("_./+-", *p)))
            return false;
    return true;
}

static void write_text(const char *s, FILE *to)
{
    if (is_plain(s)) {
        fputs(s, to);
        return;
    }
    fputc('"', to);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(to, "\\x%02x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

static bool has_children(const td__tree *t)
{
    return t->kind == TD_TREE_LIST || t->kind == TD_TREE_MAP;
}

/* Short enough for one line: no map below, and no list in a list. */
static bool is_flat(const td__tree *t)
{
    for (const td__tree *c = t->first; c; c = c->next) {
        if (c->kind == TD_TREE_MAP || (t->kind == TD_TREE_LIST && c->kind == TD_TREE_LIST))
            return false;
        if (c->kind == TD_TREE_LIST && !is_flat(c))
            return false;
    }
    return true;
}

static void write_flow(const td__tree *t, FILE *to)
{
    if (t->kind == TD_TREE_SCALAR) {
        write_text(t->text, to);
    } else if (has_children(t)) {
        fputc(t->kind == TD_TREE_MAP ? '{' : '[', to);
        for (const td__tree *c = t->first; c; c = c->next) {
            if (c != t->first)
                fputs(", ", to);
            if (c->key) {
                write_text(c->key, to);
                fputs(": ", to);
            }
            write_flow(c, to);
        }
        fputc(t->kind == TD_TREE_MAP ? '}' : ']', to);
    } else {
        fputs("null", to);
    }
}

static void indent(int columns, FILE *to)
{
    fprintf(to, "%*s", columns, "");
}

/* The children of t, each on lines of its own. The first line's indentation is already there. */
static void write_block(const td__tree *t, int column, FILE *to)
{
    for (const td__tree *c = t->first; c; c = c->next) {
        if (c != t->first)
            indent(column, to);
        if (c->key) {
            write_text(c->key, to);
            fputc(':', to);
        } else {
            fputc('-', to);
        }
        bool flow = !has_children(c) || !c->first ||
                    (is_flat(c) && (c->kind == TD_TREE_LIST || t->kind == TD_TREE_LIST));
        if (flow) {
            fputc(' ', to);
            write_flow(c, to);
            fputc('\n', to);
        } else if (c->key) {
            fputc('\n', to);
            indent(column + 2, to);
            write_block(c, column + 2, to);
        } else {
            fputc(' ', to);
            write_block(c, column + 2, to);
        }
    }
}

td_status td__tree_write(const td__tree *map, FILE *to)
{
    write_block(map, 0, to);
    if (ferror(to))
        return TD_FAIL(TD_EIO, "writing a job failed");
    return TD_OK;
}
