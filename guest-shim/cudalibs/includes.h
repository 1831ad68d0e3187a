/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that a program of NVRTC's includes from folders which its options name (-I, --include-path), as headers that go along to where no file is read.
 *
 * A file's header has the file's path for a name, and the lines that include it are written with that: two files of one name are two, and each finds
 * what lies beside it. Followed are #include and #include_next, and __has_include(), of names that stand there, whatever is around them but comments and
 * strings. Where a macro stands for a name (macros.h), each file that it may mean goes along, with a header of the name that is made, which includes it: so such
 * a name is one file for all who make it. Not followed is what macros with parameters make. No file outside those folders is read, however it is named; links inside are followed. Headers that the program
 * gave come first, as NVRTC has it. What is more than GANTRY_INCLUDES_MAX_FILES or GANTRY_INCLUDES_MAX_BYTES stays behind: the compiler says that it is not there.
 *
 * Threads: any. Reads files, as the calling process; nothing is kept.
 */
#ifndef GANTRY_GUEST_SHIM_CUDALIBS_INCLUDES_H
#define GANTRY_GUEST_SHIM_CUDALIBS_INCLUDES_H

#include <stdint.h>

#define GANTRY_INCLUDES_MAX_FILES 3000u
#define GANTRY_INCLUDES_MAX_BYTES (32ull << 20)

/* What the program gave; nothing is NULL but where there are none. */
struct gantry_includes_given {
	const char *source;
	uint32_t nheaders;
	const char *const *headers, *const *names;
	uint32_t noptions;
	const char *const *options;
};

/* The same with what it includes. All of it is the set's own. */
struct gantry_includes {
	const char *source;
	uint32_t nheaders;
	const char **headers, **names;
	const char **options; /* as many as were given */
	void *own;
};

/* 1; 0: nothing is included from there, and *ret_set has nothing; -ENOMEM. @given stays as long as the set. */
int gantry_includes_follow(const struct gantry_includes_given *given,
			   struct gantry_includes *ret_set);
void gantry_includes_fini(struct gantry_includes *set);

#endif
