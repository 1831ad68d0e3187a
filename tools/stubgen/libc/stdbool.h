/* SPDX-License-Identifier: Apache-2.0 */
#define bool _Bool
#define true 1
#define false 0
