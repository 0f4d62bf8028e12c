/* Keeps the support library non-empty. */
/* SPDX-License-Identifier: Apache-2.0 */
typedef int td__anchor;
