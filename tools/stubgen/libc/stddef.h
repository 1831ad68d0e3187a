/* SPDX-License-Identifier: Apache-2.0 */
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef int wchar_t;
#define NULL ((void *)0)
