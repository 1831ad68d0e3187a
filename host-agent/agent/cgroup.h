/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups for workers: BASE/gantry-KEY/w-ID, one per worker, version 2.
 *
 * BASE is a configured folder, or the group that the agent itself runs in (of the v2 hierarchy,
 * also where that is
 * mounted beside version 1). The kernel lets processes live in leaves only, so outside the root the
 * agent and its
 * monitor move to the leaf BASE/gantryd-KEY first; they do so only in a group that is theirs:
 * nobody else lives in
 * it and, where systemd runs the machine, it was delegated.
 *
 * Whatever is not permitted is a sentence, never a failure: workers run without it.
 *
 * Trust: what files say is the kernel's word; the configured path is the administrator's.
 * Threads: one. Blocking: system calls on cgroupfs. A worker enters its group itself, after fork:
 * moving a process
 * can wait for every processor of the machine.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_CGROUP_H
#define GANTRY_HOST_AGENT_AGENT_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GANTRY_CGROUP_NCONTROLLERS 3u
#define GANTRY_CGROUP_REASON	   160u
#define GANTRY_CGROUP_CPU_WEIGHT   100u /* the kernel's own default */

enum gantry_cgroup_controller {
	GANTRY_CGROUP_CPU,
	GANTRY_CGROUP_MEMORY,
	GANTRY_CGROUP_PIDS,
};

/* Where to look; tests have their own. */
struct gantry_cgroup_where {
	const char *proc;    /* "/proc" */
	const char *systemd; /* "/run/systemd/system": there when systemd runs the machine */
	const char *setting; /* "auto", "off", or BASE */
	char key[20]; /* what tells this agent's groups from others'; the same after its restart */
	pid_t own[2]; /* the agent, its monitor (0: none) */
};

struct gantry_cgroups {
	bool usable;
	char base[PATH_MAX - 64];
	char key[20];
	/* not usable: the reason; "" when it was switched off */
	char why_not[GANTRY_CGROUP_REASON];
	char missing[GANTRY_CGROUP_NCONTROLLERS][GANTRY_CGROUP_REASON]; /* "" where it works */
	uint64_t left[32]; /* workers whose group could not be removed yet */
	uint32_t nleft;
};

/* What a group grants. 0: no bound (weight: the default). */
struct gantry_cgroup_limits {
	uint32_t cpu_milli; /* thousandths of a processor */
	uint32_t cpu_weight;
	uint64_t mem_bytes;
	uint32_t pids;
};

/* "cpu", "memory", "pids". */
const char *gantry_cgroup_name(enum gantry_cgroup_controller controller);

/*
 * Finds BASE, makes the folder of this agent, and removes what an earlier agent of the same key
 * left empty.
 */
void gantry_cgroups_open(struct gantry_cgroups *c, const struct gantry_cgroup_where *where);
/*
 * Removes what is empty, or becomes so within 200 ms. The agent's own leaf stays: it lives there.
 */
void gantry_cgroups_close(struct gantry_cgroups *c);

/* The worker's group: makes it. 0 and its path, or -errno. */
int gantry_cgroup_make(struct gantry_cgroups *c, uint64_t worker_id, char *ret_path, size_t cap);
/* In a forked child: enter. Async-signal-safe. 0 or -errno. */
int gantry_cgroup_enter(const char *path);
/* Writes the bounds. Bits (1 << controller) of those that hold; 0 for an unusable @c. */
uint32_t gantry_cgroup_limit(struct gantry_cgroups *c, uint64_t worker_id,
			     const struct gantry_cgroup_limits *limits);
/* The kernel's word: is @pid in the group of that worker? @proc as above. */
bool gantry_cgroup_holds(const struct gantry_cgroups *c, const char *proc, uint64_t worker_id,
			 pid_t pid);
/* After its worker's end. One that is still busy is tried again with the next. */
void gantry_cgroup_remove(struct gantry_cgroups *c, uint64_t worker_id);

#endif
