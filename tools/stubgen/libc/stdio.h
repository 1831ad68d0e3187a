/* SPDX-License-Identifier: Apache-2.0 */
typedef struct gantry_stubgen_file FILE;
