/* SPDX-License-Identifier: Apache-2.0 */
#define INT_MAX	 2147483647
#define UINT_MAX 4294967295U
