/* SPDX-License-Identifier: Apache-2.0 */
/* Everything is in libraries; an executable of meson has a source. */
typedef int empty;
