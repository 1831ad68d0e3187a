/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest knows of objects by their numbers, whoever gave them: the worker, or the guest itself, which then waits
 * neither for their beginning nor for their end.
 *
 * Threads: any. Nothing here waits for anybody.
 */
#ifndef GANTRY_GUEST_SHIM_CUDALIBS_NUMBERS_H
#define GANTRY_GUEST_SHIM_CUDALIBS_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* A number for a new object, which nothing else has; 0: all are taken. */
uint64_t gantry_call_number_choose(void);
/* Whether it is one of those. */
bool gantry_call_number_is_chosen(uint64_t number);
/* Its object was never made, or is no more. Others do nothing. */
void gantry_call_number_give_up(uint64_t number);

/* Whether the program has ended it, as far as that is known here: all numbers of graphs, and those that were chosen. */
bool gantry_call_number_has_ended(uint64_t number);
/* The program has ended it. What a graph names keeps its number until the session ends. */
void gantry_call_number_end(uint64_t number);

/* A call with it as GANTRY_CALL_PROVES says has succeeded. */
void gantry_call_number_prove(uint64_t number);
bool gantry_call_number_is_proven(uint64_t number);

/*
 * A graph's node names it: a node is carried again with the numbers that it was captured with, so the object lives on when the
 * program ends it, as what a library has put into a graph does natively.
 */
void gantry_call_number_in_graph(uint64_t number);
bool gantry_call_number_is_in_graph(uint64_t number);

#endif
