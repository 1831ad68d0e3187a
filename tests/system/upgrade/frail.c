/* SPDX-License-Identifier: Apache-2.0 */
/* A gantryd that does as the liar-takes beside it (liar.c) when it is to take over, and serves when it is started again. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIAR "liar-takes"

int gantryd_main(int argc, char **argv);

static void be_the_liar(char **argv)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(LIAR));
	char *slash;

	if (n < 0)
		return;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return;
	strcpy(slash + 1, LIAR);
	(void)execv(path, argv);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--standby") != 0)
			continue;
		be_the_liar(argv);
		return 4;
	}
	return gantryd_main(argc, argv);
}
