/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that are __managed__: the host's driver places each, and the program has pages of its own at that address. Both are made
 * one where CUDA says that a program may look (docs/cuda.md): what the program has written goes to the device before something is put
 * into a stream, what the device has written comes to the program where it has waited. Both are found by what was there last, so
 * neither undoes the other's.
 *
 * A program without such variables pays a word that is read.
 * Threads: functions named _locked want cu.lock; aside.h's lock, taken last and held while a copy is waited for, guards the rest.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_MIRROR_H
#define GANTRY_GUEST_SHIM_CUDA_MIRROR_H

#include "guest-shim/cuda/core.h"

/*
 * Whether @variable, just found, is one of these. Then it gets its pages, with what it holds now. CUDA_ERROR_NOT_SUPPORTED, and
 * counted so: the program has other memory there.
 */
CUresult cu_mirror_add_locked(struct cu_variable *variable);
/* It is about to end; NULL and what is none: nothing. */
void cu_mirror_remove_locked(const struct cu_variable *variable);
/* Before something is put into a stream. */
CUresult cu_mirror_push_locked(void);
/* The program has waited: for something (whose result is @result, which is returned unless this fails), not always for all. */
CUresult cu_mirror_pull_locked(CUresult result);
/* Some of these bytes are of such a variable. */
bool cu_mirror_touches_locked(CUdeviceptr address, size_t bytes);
/* From now on it may be written while the device is at work on others. */
void cu_mirror_attach_locked(void);
/* Around a function of the host's between two tasks; any thread, without cu.lock, which a full ring behind that function may hold. */
void cu_mirror_before_function(void);
void cu_mirror_behind_function(void);

#endif
