/* grpc_wire.c -- time-outs and error texts as gRPC writes them into headers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/grpc_wire.h"

bool td__grpc_timeout(const char *text, size_t nbytes, uint64_t *ns)
{
    static const struct {
        char name;
        uint64_t ns;
    } units[] = {{'n', 1},          {'u', 1000},        {'m', 1000000},
                 {'S', 1000000000}, {'M', 60000000000}, {'H', 3600000000000}};
    uint64_t n = 0;

    if (nbytes < 2 || nbytes > 9)
        return false;
    for (size_t i = 0; i + 1 < nbytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (units[i].name == text[nbytes - 1]) {
            *ns = n * units[i].ns; /* at most 99,999,999 hours: 3.6e20 does not fit */
            if (n && *ns / n != units[i].ns)
                *ns = UINT64_MAX;
            return true;
        }
    return false;
}

void td__grpc_percent(td__text *out, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";

    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        char code[3] = {'%', hex[*p >> 4], hex[*p & 15]};

        if (*p < ' ' || *p > '~' || *p == '%')
            td__text_append(out, code, sizeof code);
        else
            td__text_append(out, (const char *)p, 1);
    }
}
