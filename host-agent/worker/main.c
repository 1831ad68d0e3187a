/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry-worker: runs sessions' tasks. Started by the agent with its control socket as descriptor 3; it takes
 * orders there, and ends when nobody holds the other end any more.
 *
 * Threads: this one speaks with the agent; device threads (device.c) do the work and hand news over by a list (news.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "host-agent/control/packet.h"
#include "host-agent/worker/build.h"
#include "host-agent/worker/output.h"
#include "host-agent/worker/probe.h"
#include "host-agent/worker/process.h"

#define POLL_MS 60000

static void rescan(struct worker *w, uint64_t tag)
{
	struct gantry_err err = { 0 };
	int r = gantry_engine_rescan(w->engine, &err);

	worker_say_done(tag, r < 0 ? GANTRY_E_INTERNAL : GANTRY_OK, err.text);
}

static void obey(struct worker *w, const to_worker *msg, const int *fds, unsigned int nfds)
{
	if (!w->engine && msg->body_case != GANTRY__WORKER__TO_WORKER__BODY_CONFIGURE &&
	    msg->body_case != GANTRY__WORKER__TO_WORKER__BODY_QUIT) {
		worker_say_done(msg->tag, GANTRY_E_AGAIN, "the worker is not configured");
		return;
	}
	switch (msg->body_case) {
	case GANTRY__WORKER__TO_WORKER__BODY_CONFIGURE:
		worker_configure(w, msg->tag, msg->configure, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_ATTACH:
		worker_attach(w, msg->tag, msg->attach, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_DETACH:
		worker_detach(w, msg->tag, msg->detach);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_EXPORT:
		worker_export(w, msg->tag, msg->export);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_IMPORT:
		worker_import(w, msg->tag, msg->import, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_NUDGE:
		gantry_engine_nudge(w->engine);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_RESCAN:
		rescan(w, msg->tag);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_GIVE_SLABS:
		worker_give_slabs(w, msg->give_slabs, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_MIGRATE:
		worker_migrate(w, msg->tag, msg->migrate);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_MIGRATE_CANCEL:
		(void)gantry_engine_migrate_cancel(w->engine, msg->migrate_cancel->session_id,
						   msg->migrate_cancel->id);
		return; /* one that is over has said so */
	case GANTRY__WORKER__TO_WORKER__BODY_GIVE_BYTES:
		(void)gantry_engine_give_bytes(w->engine, msg->give_bytes->session_id,
					       msg->give_bytes->slot, msg->give_bytes->status);
		return; /* whoever does not wait for it any more has no use for it */
	case GANTRY__WORKER__TO_WORKER__BODY_GATHER:
		worker_gather(w, msg->tag, msg->gather);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_QUIT:
		w->quit = true;
		return;
	default:
		worker_say_done(msg->tag, GANTRY_E_UNSUPPORTED,
				"this worker does not know the message");
		return;
	}
}

static void hear(struct worker *w)
{
	int fds[GANTRY_PACKET_MAX_FDS];
	ProtobufCMessage *msg;
	unsigned int nfds;
	int r = gantry_packet_recv(WORKER_CONTROL_FD, &gantry__worker__to_worker__descriptor, fds,
				   GANTRY_PACKET_MAX_FDS, &msg, &nfds);

	if (r == -ENODATA || r == -ECONNRESET || r == -EBADF || r == -ENOTSOCK)
		w->quit = true;
	else if (r < 0 && r != -EAGAIN)
		gantry_log(GANTRY_LOG_WARN, "a message of the agent was not understood: %s",
			   strerror(-r));
	if (r < 0)
		return;
	obey(w, (const to_worker *)msg, fds, nfds);
	for (unsigned int i = 0; i < nfds; i++)
		gantry_fd_close(fds[i]);
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* Kernels of guests may print (printf() of OpenCL C and of CUDA), and a driver does it for them: the agent's log is not theirs to write. Until there is a place. */
static bool print_nowhere(void)
{
	int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	bool done = null_fd >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0;

	if (null_fd != STDOUT_FILENO)
		gantry_fd_close(null_fd);
	return done;
}

int main(int argc, char **argv)
{
	struct worker w = { .news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	struct pollfd p[2] = { { .fd = WORKER_CONTROL_FD, .events = POLLIN },
			       { .fd = w.news_fd, .events = POLLIN } };

	if (argc == 2 && strcmp(argv[1], "--probe") == 0)
		_exit(gantry_probe_print(stdout) <
		      0); /* a driver's own clean-up is nobody's business */
	gantry_failpoints_open();
	gantry_failpoint(GANTRY_FAILPOINT_WORKER_START);
	worker_build_note();
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN); /* a terminal's ^C is for the agent */
	gantry_list_init(&w.leaving);
	gantry_list_init(&w.news);
	pthread_mutex_init(&w.news_lock, NULL);
	if (w.news_fd < 0 || gantry_fd_nonblock(WORKER_CONTROL_FD, true) < 0 || !print_nowhere()) {
		fprintf(stderr,
			"gantry-worker: started by gantryd, with a control socket as descriptor 3; "
			"--probe lists this machine's devices\n");
		return 2;
	}
	while (!w.quit) {
		if (poll(p, 2, POLL_MS) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			worker_send_news(&w);
		if (p[0].revents)
			hear(&w);
		worker_output_look();
	}
	worker_output_rest();
	/* Device contexts go with the process; tearing them down in order gains nobody anything. */
	_exit(0);
}
