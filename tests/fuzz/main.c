/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target without libFuzzer:
 *	target FOLDER...	replay every file of the folders, and some mutations of each; prints TAP
 *	target FILE		run one input, such as a finding
 *	target < FILE		the same, as AFL does it
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_MAX (1u << 20)
#define MUTATIONS 200u

static uint8_t input[INPUT_MAX];
static unsigned points;

/* The same sequence in every run: a failure comes back. xorshift (Marsaglia 2003). */
static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* From the heap, so that a sanitizer sees a read past the input's end. */
static void run(const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	if (!copy)
		abort();
	memcpy(copy, data, len);
	(void)LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

static void run_mutations(size_t len)
{
	static uint8_t mutated[INPUT_MAX];
	uint32_t random = 2463534242u;

	for (unsigned i = 0; i < MUTATIONS && len > 0; i++) {
		size_t cut = i % 4 == 3 ? next_random(&random) % len : len;

		memcpy(mutated, input, len);
		for (unsigned j = 0; j <= i % 3; j++)
			mutated[next_random(&random) % len] = (uint8_t)next_random(&random);
		run(mutated, cut);
	}
}

static int run_stream(FILE *file)
{
	size_t len = fread(input, 1, sizeof(input), file);

	if (ferror(file))
		return -1;
	run(input, len);
	return (int)len;
}

static int run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	int len;

	if (!file) {
		perror(path);
		return -1;
	}
	len = run_stream(file);
	fclose(file);
	return len;
}

static int replay_folder(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int failed = 0;

	if (!dir) {
		perror(folder);
		return 1;
	}
	while ((entry = readdir(dir))) {
		char path[4096];
		int len;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		len = run_file(path);
		if (len >= 0)
			run_mutations((size_t)len);
		else
			failed = 1;
		printf("%s %u - %s\n", len >= 0 ? "ok" : "not ok", ++points, entry->d_name);
		fflush(stdout);
	}
	closedir(dir);
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc == 1)
		return run_stream(stdin) < 0;
	for (int i = 1; i < argc; i++) {
		struct stat st;

		if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
			failed |= replay_folder(argv[i]);
		else
			failed |= run_file(argv[i]) < 0;
	}
	if (points > 0)
		printf("1..%u\n", points);
	return failed;
}
