/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one command on a lane and measures it.
 *
 * Device time is what the command used of its lanes. The time stamp counter is nearly free and
 * right for short commands; over a longer one the kernel may run others on this core, which the
 * tenant must not pay for, so there the thread's CPU time is read, a system call at each end.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "devices/cpu/cpu.h"

/*
 * From here on two system calls are about 2 % of the command, and a time slice may end inside it.
 */
#define LONG_NS 20000u
/* A copy or fill of this size takes about that long. */
#define LONG_BYTES (192u << 10)

/*
 * A new sample counts an eighth: steady, and yet a kernel that becomes long is found out in a few
 * runs.
 */
#define MEAN_SHIFT 3

struct meter {
	uint64_t start;
	bool by_cpu_time;
};

static struct meter meter_start(bool is_long)
{
	return (struct meter){
		.start = is_long ? gantry_thread_cpu_ns() : gantry_cycles(),
		.by_cpu_time = is_long,
	};
}

static uint64_t meter_stop(const struct meter *meter, const struct gantry_dev *dev)
{
	if (meter->by_cpu_time)
		return gantry_thread_cpu_ns() - meter->start;
	/*
	 * 64 bits hold this for an hour at several GHz; long before that the other way is in use.
	 */
	return (gantry_cycles() - meter->start) * dev->ns_per_cycle_22 >> 22;
}

static void learn(struct gantry_kernel *kernel, uint64_t ns)
{
	uint64_t mean = gantry_load_relaxed(&kernel->mean_ns);

	/* Lanes that race here lose a sample, which a mean can bear. */
	gantry_store_relaxed(&kernel->mean_ns, mean - (mean >> MEAN_SHIFT) + (ns >> MEAN_SHIFT));
}

static void finish(struct gantry_cpu_cmd *cmd, int32_t status, uint64_t ns)
{
	cmd->done.status = status;
	cmd->done.blast = status == GANTRY_OK ? GANTRY_BLAST_NONE : GANTRY_BLAST_CMD;
	cmd->done.device_ns = ns;
}

static void run_launch(struct gantry_cpu_lane *lane, struct gantry_cpu_cmd *cmd)
{
	struct gantry_kernel *kernel = cmd->kernel;
	struct meter meter = meter_start(gantry_load_relaxed(&kernel->mean_ns) >= LONG_NS);
	int32_t status = GANTRY_OK;
	uint64_t ns;
	int r;

	lane->scratch_used = 0;
	lane->extra_ns = 0;
	r = kernel->body(&lane->env, &cmd->call);
	ns = meter_stop(&meter, lane->dev);
	/* Its own lane's share decides how the next run is measured; the tenant pays for all. */
	learn(kernel, ns);
	if (r == -ECANCELED)
		status = GANTRY_E_CANCELLED;
	else if (r < 0)
		status = GANTRY_E_KERNEL;
	finish(cmd, status, ns + lane->extra_ns);
}

/* Eight bytes that repeat the pattern; it is 1, 2, 4 or 8 bytes long. */
static uint64_t widen(uint64_t pattern, uint32_t bytes)
{
	if (bytes == 1)
		return (pattern & 0xff) * 0x0101010101010101ull;
	if (bytes == 2)
		return (pattern & 0xffff) * 0x0001000100010001ull;
	if (bytes == 4)
		return (pattern & 0xffffffff) * 0x0000000100000001ull;
	return pattern;
}

static void fill(unsigned char *dst, uint64_t len, uint64_t pattern)
{
	uint64_t off = 0;

	/* memcpy(): the start may be unaligned; compilers make wide stores of it. */
	for (; off + sizeof(pattern) <= len; off += sizeof(pattern))
		memcpy(dst + off, &pattern, sizeof(pattern));
	memcpy(dst + off, &pattern, len - off);
}

static void run_move(struct gantry_cpu_lane *lane, struct gantry_cpu_cmd *cmd)
{
	struct meter meter = meter_start(cmd->len >= LONG_BYTES);

	if (cmd->kind == GANTRY_CMD_COPY)
		memmove(cmd->dst, cmd->src, cmd->len); /* ranges of one buffer may overlap */
	else
		fill(cmd->dst, cmd->len, widen(cmd->pattern, cmd->pattern_bytes));
	finish(cmd, GANTRY_OK, meter_stop(&meter, lane->dev));
}

void gantry_cpu_run(struct gantry_cpu_lane *lane, struct gantry_cpu_cmd *cmd)
{
	const struct gantry_device_host *host = lane->dev->host;

	lane->tag = cmd->done.tag;
	if (host->cancelled(host->cookie, lane->tag))
		finish(cmd, GANTRY_E_CANCELLED, 0);
	else if (cmd->kind == GANTRY_CMD_LAUNCH)
		run_launch(lane, cmd);
	else
		run_move(lane, cmd);
}
