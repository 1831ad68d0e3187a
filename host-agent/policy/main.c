/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry-policy: runs one placement policy of a shared object, so that the agent loads no foreign code. Started by the agent with
 *
 *   gantry-policy OPTIONS CONFINE UID GID        descriptor 3: the agent's socket, 4: the shared object
 *
 * It drops what it can before it loads the object, and system calls after; then it answers views (packet.h) until the agent closes
 * its end. A policy that is late, crashes or answers nonsense is the agent's business: it ends this process.
 *
 * Threads: one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/policy/builtin.h"
#include "host-agent/policy/packet.h"
#include "host-agent/worker/confine.h"

#define AGENT_FD  3
#define OBJECT	  "/proc/self/fd/4"
#define OBJECT_FD 4
#define MEMORY_MAX \
	(1ull << 30) /* address space: a policy that eats the host's memory fails first */

static uint8_t packet[GANTRY_POLICY_PACKET_MAX];
static struct gantry_policy_arrays arrays;
static struct gantry_policy_choice choices[GANTRY_POLICY_MAX_QUEUES];

static int refuse(struct gantry_policy_hello *hello, const char *text)
{
	hello->status = -EINVAL;
	(void)gantry_str_copy(hello->text, sizeof(hello->text),
			      text); /* cut is better than unsaid */
	return -EINVAL;
}

static int check_entry(const struct gantry_policy *p, struct gantry_policy_hello *hello)
{
	char text[GANTRY_POLICY_TEXT];

	if (p->abi == GANTRY_POLICY_ABI && p->bytes == sizeof(*p) && p->place && p->name)
		return 0;
	if (p->abi == GANTRY_POLICY_ABI)
		return refuse(hello, "its entry lacks a name or place(), or is of another length");
	(void)gantry_str_format(
		text, sizeof(text),
		"it was built for ABI %u of policies, this gantryd has %u; build it again", p->abi,
		GANTRY_POLICY_ABI);
	return refuse(hello, text);
}

/* The policy and its state, or a HELLO that says why not. */
static int load(const char *options, struct gantry_policy_hello *hello,
		const struct gantry_policy **ret_policy, void **ret_state)
{
	void *object = dlopen(OBJECT, RTLD_NOW | RTLD_LOCAL);
	const struct gantry_policy *p;
	int r;

	if (!object)
		return refuse(hello, dlerror());
	p = dlsym(object, GANTRY_POLICY_SYMBOL);
	if (!p)
		return refuse(hello, "it defines no " GANTRY_POLICY_SYMBOL);
	r = check_entry(p, hello);
	if (r < 0)
		return r;
	(void)gantry_str_copy(hello->name, sizeof(hello->name), p->name);
	if (p->summary)
		(void)gantry_str_copy(hello->summary, sizeof(hello->summary), p->summary);
	if (!p->create && options[0])
		return refuse(hello, "it has no options");
	if (p->create && p->create(options, ret_state, hello->text, sizeof(hello->text)) < 0) {
		hello->status = -EINVAL;
		return -EINVAL;
	}
	*ret_policy = p;
	return 0;
}

/* One view. Nothing is answered to what is none: the agent's patience ends it. */
static void answer(const struct gantry_policy *policy, void *state, size_t len)
{
	uint64_t number = 0;
	size_t n;
	int r;

	if (gantry_policy_view_unpack(packet, len, &number, &arrays) < 0)
		return;
	gantry_policy_stay(&arrays.view, choices);
	r = policy->place(state, &arrays.view, choices);
	n = gantry_policy_choices_pack(choices, arrays.view.nqueues, r, number, packet);
	(void)gantry_fd_send(AGENT_FD, packet, n, NULL, 0, 0); /* its end is seen next */
}

static void serve(const struct gantry_policy *policy, void *state)
{
	for (;;) {
		ssize_t n = gantry_fd_recv(AGENT_FD, packet, sizeof(packet), NULL, 0, NULL, 0);

		if (n <= 0)
			return;
		answer(policy, state, (size_t)n);
	}
}

static void say(const struct gantry_policy_hello *hello)
{
	(void)gantry_fd_send(AGENT_FD, hello, sizeof(*hello), NULL, 0, 0); /* or nobody is there */
}

int main(int argc, char **argv)
{
	const struct rlimit memory = { MEMORY_MAX, MEMORY_MAX };
	struct gantry_policy_hello hello = { .abi = GANTRY_POLICY_ABI };
	const struct gantry_policy *policy = NULL;
	const char *missing = NULL;
	void *state = NULL;
	bool confine;

	gantry_log_open("gantry-policy");
	if (argc != 5) {
		fprintf(stderr, "gantry-policy: started by gantryd, for one placement policy\n");
		return 2;
	}
	confine = strtoul(argv[2], NULL, 10) != 0;
	(void)signal(SIGINT, SIG_IGN); /* a terminal's ^C is for the agent */
	if (confine)
		missing = gantry_confine_loader((uid_t)strtoul(argv[3], NULL, 10),
						(gid_t)strtoul(argv[4], NULL, 10));
	/* After a change of user, which forgets it. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!missing && setrlimit(RLIMIT_AS, &memory) < 0 && confine)
		missing = "a limit of memory";
	if (load(argv[1], &hello, &policy, &state) < 0) {
		say(&hello);
		return 1;
	}
	(void)close(OBJECT_FD);
	if (confine && !missing)
		missing = gantry_confine_loaded();
	if (missing)
		gantry_log(GANTRY_LOG_WARN, "not confined: %s", missing);
	say(&hello);
	serve(policy, state);
	return 0;
}
