/* token.c -- `tandem token`: a new token for a training service. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/sha256.h"
#include "command.h"
#include "rpc/tokens.h"

enum { RANDOM_BYTES = 24 };

static int run(const td__args *a)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *user = td__args_at(a, 0), *file = td__args_value(a, "output");
    const char *scope = td__args_value(a, "scope");
    uint8_t random[RANDOM_BYTES], digest[TD_SHA256_BYTES];
    char token[4 * RANDOM_BYTES / 3 + 4] = "td_", hex[TD_SHA256_HEX];
    td__scope known;
    scope = scope ? scope : "submit";
    if (!td__scope_parse(scope, &known))
        return td__usage_error(a, "--scope %s: expected read, submit or admin", scope);
    if (!*user || strpbrk(user, "\"\\\n"))
        return td__usage_error(a, "expected the name of a user, found '%s'", user);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return td__usage_error(a, "no random numbers: %s", strerror(errno));
    for (int i = 0, n = 3; i < RANDOM_BYTES; i += 3, n += 4) { /* base64url */
        unsigned v = (unsigned)random[i] << 16 | (unsigned)random[i + 1] << 8 | random[i + 2];
        for (int k = 0; k < 4; k++)
            token[n + k] = DIGITS[v >> (18 - 6 * k) & 63];
    }
    td_status st = td__sha256_of(token, strlen(token), digest);
    if (st)
        return td__failure(a, st);
    td__sha256_hex(digest, hex);
    if (file) {
        int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || dprintf(fd, "%s\n", token) < 0 || close(fd))
            return td__usage_error(a, "cannot write %s: %s", file, strerror(errno));
    } else {
        fprintf(stderr, "token, shown this once: %s\n", token);
    }
    printf("- {name: \"%s\", scope: %s, sha256: %s}\n", user, scope, hex);
    return TD_EXIT_OK;
}

static const td__flag FLAGS[] = {
    {"scope", 0, "SCOPE", "what it opens; submit", "read submit admin"},
    {"output", 'o', "FILE", "write the token to a new file (mode 0600), for --token-file", "FILE"},
    {0},
};
static const char *const EXAMPLES[] = {"tandem token ann --scope submit -o ann.token",
                                       "a token for ann, and the row for the service", NULL};

const td__command td__command_token = {
    .name = "token",
    .args = "USER",
    .summary = "make a token for a training service",
    .text =
        "Prints the row for security.tokens in the service's configuration, which holds only the "
        "token's sha256. The token itself goes to the file, or to standard error.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
