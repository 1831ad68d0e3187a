/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/vocab.h"

const char *gantry_status_name(int status)
{
	switch (status) {
	case GANTRY_OK:
		return "GANTRY_OK";
#define STATUS_NAME(name, value, text) \
	case value:                    \
		return "GANTRY_E_" #name;
		GANTRY_STATUS_LIST(STATUS_NAME)
	default:
		return "unknown";
	}
}

const char *gantry_status_text(int status)
{
	switch (status) {
	case GANTRY_OK:
		return "done";
#define STATUS_TEXT(name, value, text) \
	case value:                    \
		return text;
		GANTRY_STATUS_LIST(STATUS_TEXT)
	default:
		return "unknown";
	}
}

const char *gantry_kind_name(int kind)
{
	static const char *const names[GANTRY_NKINDS] = {
		[GANTRY_KIND_ANY] = "any",	 [GANTRY_KIND_CPU] = "cpu",
		[GANTRY_KIND_CUDA] = "cuda",	 [GANTRY_KIND_HIP] = "hip",
		[GANTRY_KIND_OPENCL] = "opencl", [GANTRY_KIND_FPGA] = "fpga",
		[GANTRY_KIND_SIM] = "sim",	 [GANTRY_KIND_NULL] = "null",
	};

	return kind >= 0 && kind < GANTRY_NKINDS ? names[kind] : "unknown";
}
