/* sanitized.h -- is this a build with sanitizers? They make code several times slower, so limits
 * of time are wider there, and loops that only look for other bits shorter. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_SANITIZED_H
#define TD_TESTS_SUPPORT_SANITIZED_H

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
