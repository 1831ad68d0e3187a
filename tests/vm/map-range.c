/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map-range FILE OFF BYTES: maps that part of FILE (a device's resource) and prints "mapped"; ends with its input. Other
 * programs see what the kernel makes of a range that is mapped already.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char unused;
	int fd = argc == 4 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0) {
		fprintf(stderr, "usage: map-range FILE OFF BYTES, of a FILE that can be opened\n");
		return 2;
	}
	if (mmap(NULL, strtoull(argv[3], NULL, 0), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		 (off_t)strtoull(argv[2], NULL, 0)) == MAP_FAILED) {
		perror(argv[1]);
		return 1;
	}
	printf("mapped\n");
	(void)fflush(stdout); /* nobody reads: the test sees that */
	while (read(0, &unused, 1) > 0)
		;
	return 0;
}
