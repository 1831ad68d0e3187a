/* SPDX-License-Identifier: Apache-2.0 */
/* For generated trials: host memory with addresses of the device's inside, as code by hand takes it apart. It comes after the vendor's headers. */
#ifndef GANTRY_TESTS_UNIT_DEVICES_CALLS_RECORDS_H
#define GANTRY_TESTS_UNIT_DEVICES_CALLS_RECORDS_H

#include "tests/unit/devices/calls/roundtrip.h"

#if defined(_CUDA_LIB_XT_H_)
static inline void note_cudaLibXtDesc(const cudaLibXtDesc *record)
{
	const cudaXtDesc *parts = record->descriptor;

	note_bytes(&record->version, sizeof(record->version));
	note_bytes(&record->library, sizeof(record->library));
	note_bytes(&record->subFormat, sizeof(record->subFormat));
	note_u64((uintptr_t)record->libDescriptor);
	note_bytes(&parts->version, sizeof(parts->version));
	note_u64((uintptr_t)parts->cudaXtState);
	note_bytes(&parts->nGPUs, sizeof(parts->nGPUs));
	for (int i = 0; i < parts->nGPUs; i++) {
		note_bytes(&parts->GPUs[i], sizeof(parts->GPUs[i]));
		note_u64((uintptr_t)parts->data[i]);
		note_u64(parts->size[i]);
	}
}

/* The object's own opaque members stay where it is: none has any here. */
static inline cudaLibXtDesc *some_cudaLibXtDesc(int64_t nparts)
{
	cudaLibXtDesc *record = keep_zeroed(sizeof(*record));
	cudaXtDesc *parts = keep_zeroed(sizeof(*parts));
	const int *own = own_devices(MAX_CUDA_DESCRIPTOR_GPUS);

	random_bytes(&record->version, sizeof(record->version));
	random_bytes(&record->subFormat, sizeof(record->subFormat));
	random_bytes(&parts->version, sizeof(parts->version));
	random_bytes(parts->size, sizeof(parts->size));
	record->descriptor = parts;
	parts->nGPUs = (int)nparts;
	for (int i = 0; i < parts->nGPUs; i++) {
		parts->GPUs[i] = own[i];
		parts->data[i] = some_device();
	}
	return record;
}

/* What the library changes in it. */
static inline void fill_cudaLibXtDesc(cudaLibXtDesc *record)
{
	fill(&record->subFormat, sizeof(record->subFormat));
}

static inline void check_cudaLibXtDesc(const cudaLibXtDesc *record)
{
	check_fill(&record->subFormat, sizeof(record->subFormat), true);
}
#endif

#endif
