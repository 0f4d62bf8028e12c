/* httpd_route.c -- paths against patterns of routes: "/v1/jobs/{id}", "/files/{path...}". */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "rpc/httpd_impl.h"

bool td__httpd_path_ok(const char *path)
{
    if (*path != '/')
        return false;
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
            return false;
    for (const char *p = path; p; p = strchr(p + 1, '/')) {
        size_t n = strcspn(p + 1, "/");
        if ((n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.'))
            return false;
    }
    return true;
}

bool td__httpd_match(const char *pattern, char *path, td__httpd_param_value *params, int *n_params)
{
    char *cuts[TD__HTTPD_PARAMS];
    int n = 0, n_cuts = 0;
    char *at = path;
    while (*pattern) {
        if (*pattern != '{') {
            if (*pattern++ != *at++)
                return false;
            continue;
        }
        size_t name = strcspn(pattern + 1, ".}");
        bool rest = pattern[1 + name] == '.';
        size_t length = rest ? strlen(at) : strcspn(at, "/");
        if (!length || n == TD__HTTPD_PARAMS)
            return false;
        params[n++] = (td__httpd_param_value){.name = pattern + 1, .value = at};
        at += length;
        pattern = strchr(pattern, '}') + 1;
        if (*at)
            cuts[n_cuts++] = at;
    }
    if (*at)
        return false;
    for (int i = 0; i < n_cuts; i++)
        *cuts[i] = 0;
    *n_params = n;
    return true;
}
