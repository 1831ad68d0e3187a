/* SPDX-License-Identifier: Apache-2.0 */
#include "socket.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"

#define GROUPS_MAX 64

struct who {
	uid_t uid;
	gid_t groups[GROUPS_MAX];
	int ngroups;
};

static void learn_groups(struct who *who, gid_t gid)
{
	const struct passwd *user = getpwuid(who->uid);

	who->ngroups = GROUPS_MAX;
	if (!user || getgrouplist(user->pw_name, gid, who->groups, &who->ngroups) < 0) {
		who->groups[0] = gid;
		who->ngroups = 1;
	}
}

/* @bits: of the last octal digit. Access lists and capabilities beyond root's are not looked at. */
static bool may(const struct who *who, const struct stat *st, mode_t bits)
{
	if (who->uid == 0)
		return true;
	if (st->st_uid == who->uid)
		return (st->st_mode >> 6 & bits) == bits;
	for (int i = 0; i < who->ngroups; i++)
		if (st->st_gid == who->groups[i])
			return (st->st_mode >> 3 & bits) == bits;
	return (st->st_mode & bits) == bits;
}

int gantry_vm_socket_check(const char *path, uid_t uid, gid_t gid, struct gantry_err *err)
{
	struct who who = { .uid = uid };
	char part[PATH_MAX];
	struct stat st;

	if (path[0] != '/' || gantry_str_copy(part, sizeof(part), path) < 0)
		return gantry_err_set(err, -ENOENT, "%s is no path of a socket", path);
	learn_groups(&who, gid);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (stat(part, &st) == 0 && !may(&who, &st, 1))
			return gantry_err_set(err, -EACCES,
					      "its QEMU (uid %u, gid %u) may not enter %s", uid,
					      gid, part);
		*slash = '/';
	}
	if (stat(path, &st) < 0)
		return gantry_err_set_errno(err, -errno, "the door's socket %s", path);
	if (!S_ISSOCK(st.st_mode))
		return gantry_err_set(err, -ENOTSOCK, "%s is no socket", path);
	if (!may(&who, &st, 2))
		return gantry_err_set(
			err, -EACCES,
			"its QEMU (uid %u, gid %u) may not connect to %s (mode %04o, owner %u:%u)",
			uid, gid, path, st.st_mode & 07777, st.st_uid, st.st_gid);
	return 0;
}
