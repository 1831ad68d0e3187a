/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"

const struct gantry_verb_option gantry_global_options[] = {
	{ "socket", "PATH",
	  "the agent's admin socket (default: $GANTRY_ADMIN, else /run/gantry/admin.sock)",
	  GANTRY_WORDS_FILE },
	{ "json", NULL,
	  "print one JSON object, with \"schema\": 1, integer bytes and stable keys" },
	{ "no-headings", NULL, "no heading line over tables" },
	{ "bytes", NULL, "sizes and durations in tables as plain bytes and nanoseconds" },
	{ "timeout", "TIME",
	  "give up on the agent after TIME, such as 500ms or 1m (default: 10s)" },
	{ "help", NULL, "what a verb does, and its options" },
	{ 0 },
};

static const struct gantry_verb_option filter_options[] = {
	{ "tenant", "NAME", "only this tenant's", GANTRY_WORDS_TENANT },
	{ 0 },
};

static const struct gantry_verb_option queue_options[] = {
	{ "tenant", "NAME", "only this tenant's", GANTRY_WORDS_TENANT },
	{ "session", "ID", "only this session's", GANTRY_WORDS_SESSION },
	{ 0 },
};

static const struct gantry_verb_option queue_migrate_options[] = {
	{ "to", "DEVICE[:LANE]", "where the queue is to go", GANTRY_WORDS_DEVICE },
	{ "dry-run", NULL, "only say whether it could, and what it would take along" },
	{ "lazy", NULL, "go at once; its tasks pull their buffers when they use them" },
	{ 0 },
};

static const struct gantry_verb_option migration_options[] = {
	{ "trace", NULL, "print a trace for ui.perfetto.dev, as JSON" },
	{ 0 },
};

static const struct gantry_verb_option show_options[] = {
	{ "unsupported", NULL,
	  "only what its program called and its drop-in library (CUDA) does not have, with counts" },
	{ 0 },
};

static const struct gantry_verb_option kick_options[] = {
	{ "reason", "TEXT", "what the guest is told" },
	{ 0 },
};

static const struct gantry_verb_option migrate_options[] = {
	{ "to", "HOST[:PORT]|DEVICE",
	  "where its agent listens (default port: 16601); or a device of this host" },
	{ "bandwidth", "RATE",
	  "at most so many bytes a second, such as 100M (default: all there is)" },
	{ "dry-run", NULL, "ask whether it could go; it stays" },
	{ "lazy", NULL, "it runs there at once, and fetches each buffer when a task uses it" },
	{ "no-wait", NULL, "print the migration's number and end; it goes on" },
	{ 0 },
};

static const struct gantry_verb_option stats_options[] = {
	{ "prometheus", NULL, "in Prometheus' text format, as /metrics serves it" },
	{ 0 },
};

static const struct gantry_verb_option top_options[] = {
	{ "once", NULL, "one picture, then end" },
	{ "interval", "TIME", "from picture to picture (default: 1s)" },
	{ "count", "N", "end after N pictures" },
	{ 0 },
};

static const struct gantry_verb_option events_options[] = {
	{ "follow", NULL, "go on with new ones as they happen" },
	{ "tenant", "NAME", "only this tenant's", GANTRY_WORDS_TENANT },
	{ 0 },
};

static const struct gantry_verb_option cdi_options[] = {
	{ "tenant", "NAME", "only this tenant (default: all)", GANTRY_WORDS_TENANT },
	{ "output", "DIR", "write into DIR; - prints (default: /var/run/cdi)", GANTRY_WORDS_FILE },
	{ "print-flags", "ENGINE",
	  "print the flags of podman, docker or runc that do the same, write nothing",
	  GANTRY_WORDS_ENGINE },
	{ "doors", "DIR", "do not ask the agent: the door of tenant T is DIR/T/door",
	  GANTRY_WORDS_FILE },
	{ "library", "FILE",
	  "the libgantry.so.0 to mount; none: mount none (default: the installed one)",
	  GANTRY_WORDS_FILE },
	{ "library-at", "PATH", "where containers see it (default: /usr/lib/libgantry.so.0)" },
	{ "cuda", "DIR",
	  "the folder of our libraries for CUDA to mount; none: mount none (default: the installed one)",
	  GANTRY_WORDS_FILE },
	{ "wheels", "PATH",
	  "site-packages in the container: put ours in the place of NVIDIA's wheels there" },
	{ 0 },
};

#define CONNECT_OPTION                                                                           \
	{                                                                                        \
		"connect", "URI",                                                                \
			"libvirt's address (default: $LIBVIRT_DEFAULT_URI, else qemu:///system)" \
	}

static const struct gantry_verb_option vm_options[] = {
	CONNECT_OPTION,
	{ 0 },
};

static const struct gantry_verb_option vm_attach_options[] = {
	{ "tenant", "NAME", "whose door it is", GANTRY_WORDS_TENANT },
	{ "transport", "KIND", "ivshmem (default) or vsock", GANTRY_WORDS_TRANSPORT },
	{ "size", "SIZE",
	  "of the shared memory, a power of two (default: the tenant's ivshmem_size)" },
	{ "config", NULL, "also in the persistent definition; only there, if it does not run" },
	CONNECT_OPTION,
	{ 0 },
};

static const struct gantry_verb_option vm_detach_options[] = {
	{ "tenant", "NAME", "only this tenant's door", GANTRY_WORDS_TENANT },
	{ "drain", "TIME", "how long programs may take to leave (default: 5s)" },
	{ "config", NULL, "also from the persistent definition" },
	CONNECT_OPTION,
	{ 0 },
};

static const struct gantry_verb_option vm_migrate_options[] = {
	{ "to", "HOST[:PORT]",
	  "the agent there, as session migrate has it (default: the host of DESTURI)" },
	{ "to-socket", "PATH",
	  "where its admin socket is led to, such as by ssh -L PATH:/run/gantry/admin.sock",
	  GANTRY_WORDS_FILE },
	{ "back", "HOST[:PORT]",
	  "this agent, as that one reaches it (default: as it is named in its certificate)" },
	{ "tenant", "NAME[,NAME...]",
	  "whose sessions behind streams go along, besides those of the doors in the machine",
	  GANTRY_WORDS_TENANT },
	{ "drain", "TIME",
	  "programs that cannot be taken along may leave for so long (default: none may be there)" },
	{ "return", "TIME",
	  "guests that are not at their sessions there by then make it fail (default: they are only counted, after 3s)" },
	{ "limit", "TIME",
	  "for libvirt's part, which is stopped then (default: 10m; with sessions, most of vsock_grace)" },
	{ "bandwidth", "RATE", "bytes a second for the sessions, and as much for the machine" },
	{ "migrate-uri", "URI", "where the machine's memory goes, as virsh migrate has it" },
	{ "back-uri", "URI", "the same for the way back" },
	{ "xml", "FILE", "the machine's definition there, where it differs", GANTRY_WORDS_FILE },
	{ "attached", NULL,
	  "the device stays in the machine, or nothing is done (default: where it can stay in)" },
	{ "detached", NULL, "it comes out here and goes in there" },
	{ "persistent", NULL, "it is defined there, too" },
	{ "undefine-source", NULL, "and here no more" },
	{ "dry-run", NULL, "only ask everybody whether it could go" },
	CONNECT_OPTION,
	{ 0 },
};

static const struct gantry_verb_option vm_args_options[] = {
	{ "format", "FORM", "qemu (default), libvirt or proxmox", GANTRY_WORDS_VM_FORMAT },
	{ "transport", "KIND", "ivshmem or vsock (default: the one that the tenant has)",
	  GANTRY_WORDS_TRANSPORT },
	{ "wake", NULL, "libvirt: the channel by which programs are woken, an element of its own" },
	{ 0 },
};

static const struct gantry_verb_option doctor_options[] = {
	{ "cdi-dir", "DIR",
	  "where container engines look for CDI files (default: /etc/cdi and /var/run/cdi)",
	  GANTRY_WORDS_FILE },
	{ 0 },
};

static const struct gantry_verb_option upgrade_options[] = {
	{ "binary", "FILE",
	  "the gantryd to change to (default: the one where this one was started from)",
	  GANTRY_WORDS_FILE },
	{ "check", NULL, "say only whether it could take over" },
	{ "downgrade", NULL, "also where its version is older" },
	{ "restart-workers", NULL,
	  "then give sessions workers of the new build, one worker after the other" },
	{ 0 },
};

static const struct gantry_verb_option demo_options[] = {
	{ "output", "DIR", "where the pictures go (default: a new folder under /tmp)",
	  GANTRY_WORDS_FILE },
	{ "gpu", "N", "on NVIDIA GPU N, as nvidia-smi counts, or with this UUID" },
	{ "device", "KEY=VALUE,...", "on a device with these keys of gantry.conf(5)" },
	{ "log", NULL, "print the agent's log at the end" },
	{ 0 },
};

static const struct gantry_verb_option help_options[] = {
	{ "scdoc", NULL, "the list of verbs for the man page" },
	{ 0 },
};

static const struct gantry_verb_option image_options[] = {
	{ "device", "DEVICE", "whose store (default: the one device that has images)",
	  GANTRY_WORDS_DEVICE },
	{ 0 },
};

static const struct gantry_verb_option image_remove_options[] = {
	{ "device", "DEVICE", "whose store (default: the one device that has images)",
	  GANTRY_WORDS_DEVICE },
	{ "now", NULL, "do not wait: queued tasks fail that nothing on the board serves" },
	{ "no-wait", NULL, "return at once; it goes when what was queued has ended" },
	{ "cancel", NULL, "keep an image that is being removed" },
	{ 0 },
};

static const struct gantry_verb_option image_add_options[] = {
	{ "device", "DEVICE", "whose store (default: the one device that has images)",
	  GANTRY_WORDS_DEVICE },
	{ "tenant", "NAME", "nobody else finds its kernels", GANTRY_WORDS_TENANT },
	{ 0 },
};

const struct gantry_verb gantry_verbs[] = {
	{ "device", "list", "", 0, 0, "list the host's devices", NULL, NULL, 0, 0, 0,
	  gantry_ctl_device_list },
	{ "device", "show", "DEVICE", 1, 1, "show all that is known of a device", NULL, NULL,
	  GANTRY_WORDS_DEVICE, 0, 0, gantry_ctl_device_show },
	{ "device", "enable", "DEVICE", 1, 1, "let a device serve again", NULL, NULL,
	  GANTRY_WORDS_DEVICE, 0, 0, gantry_ctl_device_enable },
	{ "device", "disable", "DEVICE", 1, 1, "start nothing more on a device and shut its lanes",
	  "What runs is not ended. Queues go to another device they may use, or wait for enable.",
	  NULL, GANTRY_WORDS_DEVICE, 0, 0, gantry_ctl_device_disable },
	{ "device", "drain", "DEVICE", 1, 1,
	  "let a device finish what runs and give it nothing new",
	  "Queues go to another device they may use, or wait for enable. It is free for maintenance "
	  "once \"device show\" says running 0.",
	  NULL, GANTRY_WORDS_DEVICE, 0, 0, gantry_ctl_device_drain },

	{ "tenant", "list", "", 0, 0, "list tenants with their use and limits", NULL, NULL, 0, 0, 0,
	  gantry_ctl_tenant_list },
	{ "tenant", "show", "TENANT", 1, 1, "show all limits and figures of a tenant", NULL, NULL,
	  GANTRY_WORDS_TENANT, 0, 0, gantry_ctl_tenant_show },
	{ "tenant", "create", "TENANT", 1, 1, "make a tenant and open its door",
	  "Kept under the agent's state directory. Options not given take the agent's defaults.",
	  gantry_tenant_options, 0, 0, 0, gantry_ctl_tenant_create },
	{ "tenant", "set", "TENANT", 1, 1, "change limits of a tenant, live",
	  "Only what is given changes. Kept under the agent's state directory.",
	  gantry_tenant_options, GANTRY_WORDS_TENANT, 0, 0, gantry_ctl_tenant_set },
	{ "tenant", "remove", "TENANT", 1, 1, "close a tenant's door and end its sessions", NULL,
	  NULL, GANTRY_WORDS_TENANT, 0, 0, gantry_ctl_tenant_remove },

	{ "session", "list", "", 0, 0, "list attached guest processes", NULL, filter_options, 0, 0,
	  0, gantry_ctl_session_list },
	{ "session", "show", "SESSION", 1, 1, "show all that is known of a session", NULL,
	  show_options, GANTRY_WORDS_SESSION, 0, 0, gantry_ctl_session_show },
	{ "session", "kick", "SESSION", 1, 1, "end a session", NULL, kick_options,
	  GANTRY_WORDS_SESSION, 0, 0, gantry_ctl_session_kick },

	{ "session", "migrate", "SESSION", 1, 1,
	  "move a session to another host, or GPU, while it works",
	  "A guest behind a stream (vsock) follows by itself. Where anything fails the session stays here, and "
	  "the last line says why. To another device of this host, of the same model, goes all that a program of "
	  "CUDA works on, at the addresses that it knows; it notices a pause.",
	  migrate_options, GANTRY_WORDS_SESSION, 0, 0, gantry_ctl_session_migrate },
	{ "queue", "list", "", 0, 0, "list queues with their progress", NULL, queue_options, 0, 0,
	  0, gantry_ctl_queue_list },
	{ "queue", "show", "SESSION:SLOT", 1, 1, "show all that is known of a queue", NULL, NULL,
	  GANTRY_WORDS_QUEUE, 0, 0, gantry_ctl_queue_show },
	{ "queue", "pause", "SESSION:SLOT", 1, 1, "issue nothing more from a queue",
	  "What runs is finished; the guest may go on submitting.", NULL, GANTRY_WORDS_QUEUE, 0, 0,
	  gantry_ctl_queue_pause },
	{ "queue", "resume", "SESSION:SLOT", 1, 1, "go on with a paused queue", NULL, NULL,
	  GANTRY_WORDS_QUEUE, 0, 0, gantry_ctl_queue_resume },
	{ "queue", "migrate", "SESSION[:SLOT]", 1, 1,
	  "move a queue, or all of a session, to another device while its program runs",
	  "Its buffers go along: they are copied while it runs, then it stands still for what was "
	  "written meanwhile. Waits until it is there; if that cannot be, the queue stays where it "
	  "is and the exit code says why. Without a SLOT all queues of the session go: none of them "
	  "unless each could. With a LANE (0, 1, ...) the queue keeps that lane of the device from then "
	  "on, until it is moved again; its own device can be named for that, without one for any lane.",
	  queue_migrate_options, GANTRY_WORDS_QUEUE, 0, 0, gantry_ctl_queue_migrate },

	{ "migration", "list", "", 0, 0, "list queues and sessions that move or have moved", NULL,
	  NULL, 0, 0, 0, gantry_ctl_migration_list },
	{ "migration", "show", "ID", 1, 1, "show how a migration goes or went", NULL,
	  migration_options, 0, 0, 0, gantry_ctl_migration_show },
	{ "migration", "cancel", "ID", 1, 1, "call a migration back, if it still can turn", NULL,
	  NULL, 0, 0, 0, gantry_ctl_migration_cancel },

	{ "worker", "list", "", 0, 0, "list worker processes and how they are confined", NULL, NULL,
	  0, 0, 0, gantry_ctl_worker_list },
	{ "policy", "list", "", 0, 0, "list policies, which say which device serves which queue",
	  NULL, NULL, 0, 0, 0, gantry_ctl_policy_list },
	{ "policy", "show", "POLICY", 1, 1, "show all that is known of a policy", NULL, NULL,
	  GANTRY_WORDS_POLICY, 0, 0, gantry_ctl_policy_show },
	{ "group", "list", "", 0, 0, "list groups of devices, their policies and what these did",
	  NULL, NULL, 0, 0, 0, gantry_ctl_group_list },
	{ "agent", "upgrade", "", 0, 0, "let another build of gantryd take over",
	  "Sessions and their tasks go on. A build that cannot take over is refused before anything is "
	  "touched, and one that fails makes way for the one before. Workers keep their build until their "
	  "sessions end, or are exchanged with --restart-workers.",
	  upgrade_options, 0, 0, 0, gantry_ctl_agent_upgrade },
	{ "kernel", "list", "", 0, 0, "list kernels of installed modules", NULL, NULL, 0, 0, 0,
	  gantry_ctl_kernel_list },
	{ "kernel", "rescan", "", 0, 0, "look for new kernel modules now", NULL, NULL, 0, 0, 0,
	  gantry_ctl_kernel_rescan },

	{ "image", "list", "", 0, 0, "list the images that boards may load", NULL, NULL, 0, 0, 0,
	  gantry_ctl_image_list },
	{ "image", "show", "IMAGE", 1, 1, "show an image with its kernels and files", NULL,
	  image_options, 0, 0, 0, gantry_ctl_image_show },
	{ "image", "add", "MANIFEST", 1, 1, "register an image of a board, while it works",
	  "The manifest (*.bitstream) and the files that it names, which lie beside it, are copied into the "
	  "device's store. What is not what the manifest was written for is refused.",
	  image_add_options, GANTRY_WORDS_FILE, 0, 0, gantry_ctl_image_add },
	{ "image", "remove", "IMAGE", 1, 1, "forget an image, once what was queued has ended",
	  "From now on nobody finds kernels that no other image has, and new launches of them fail with NO_KERNEL; "
	  "accepted ones run. Waits until it is gone, and tells how many tasks are left. What of it is on "
	  "the board stays there until another takes its place.",
	  image_remove_options, 0, 0, 0, gantry_ctl_image_remove },

	{ "stats", NULL, "", 0, 0, "print the agent's counters", NULL, stats_options, 0, 0, 0,
	  gantry_ctl_stats },
	{ "top", NULL, "", 0, 0, "watch devices, tenants and sessions at work",
	  "Refreshed until q or ^C. Where the output is no terminal, pictures follow each other.",
	  top_options, 0, 0, 0, gantry_ctl_top },
	{ "events", NULL, "", 0, 0, "print what happened: attachments, deaths, changes, refusals",
	  "With --json one object a line. --follow has no end but ^C, or --timeout when given.",
	  events_options, 0, 0, 0, gantry_ctl_events },

	{ "run", NULL, "TENANT -- COMMAND [ARG...]", 2, -1, "run a program with a tenant's door",
	  "Sets GANTRY_DOOR (and OCL_ICD_VENDORS, where our OpenCL driver is not installed; and our libraries for programs of CUDA first in LD_LIBRARY_PATH, where they "
	  "are there), after checking that the door is there and admits you. Says so where the program has NVIDIA's static runtime inside, which "
	  "finds no device. The exit status is the program's.",
	  NULL, GANTRY_WORDS_TENANT, 1, 0, gantry_ctl_run },

	{ "config", "check", "[FILE]", 0, 1, "check a configuration without using it",
	  "As gantryd --check-config: each problem with its file and line.", NULL,
	  GANTRY_WORDS_FILE, 0, 0, gantry_ctl_config_check },
	{ "reload", NULL, "", 0, 0, "make the agent read its configuration again",
	  "A configuration with a mistake is refused and the old one stays.", NULL, 0, 0, 0,
	  gantry_ctl_reload },
	{ "doctor", NULL, "[FILE...]", 0, -1, "check the installation and say what to do",
	  "Of each FILE, a program or a library, also whether it takes CUDA from Gantry's libraries: not with NVIDIA's static runtime inside.",
	  doctor_options, GANTRY_WORDS_FILE, 0, 0, gantry_ctl_doctor },
	{ "demo", NULL, "", 0, 0, "show Gantry at work: two tenants, two devices, some accidents",
	  "Starts an agent of its own; the running one is left alone.", demo_options, 0, 0, 0,
	  gantry_ctl_demo },
	{ "cdi", "generate", "", 0, 0, "write a CDI file per tenant for container engines",
	  "A container gets the tenant's door at /run/gantry/door, libgantry and GANTRY_DOOR, and where they are installed our libraries for "
	  "CUDA, first in LD_LIBRARY_PATH; no device node.",
	  cdi_options, 0, 0, 0, gantry_ctl_cdi_generate },
	{ "vm", "list", "", 0, 0, "list libvirt's virtual machines and the doors in them", NULL,
	  vm_options, 0, 0, 0, gantry_ctl_vm_libvirt },
	{ "vm", "show", "DOMAIN", 1, 1,
	  "show the doors in a virtual machine and what it could take",
	  "An address that the guest has not assigned is empty.", vm_options, 0, 0, 0,
	  gantry_ctl_vm_libvirt },
	{ "vm", "attach", "DOMAIN", 1, 1, "put a tenant's door into a virtual machine",
	  "While it runs; done once the guest has given the device an address. Undone if it does not.",
	  vm_attach_options, 0, 0, 0, gantry_ctl_vm_libvirt },
	{ "vm", "detach", "DOMAIN", 1, 1, "take a tenant's door out of a virtual machine",
	  "Programs in the guest are told and may leave first; sessions left after --drain are ended.",
	  vm_detach_options, 0, 0, 0, gantry_ctl_vm_libvirt },
	{ "vm", "migrate", "DOMAIN DESTURI", 2, 2,
	  "move a virtual machine to another host together with its sessions",
	  "By libvirt's live migration. Its device stays in it where that can be, and its sessions then stand still no longer than it does. "
	  "Where a step fails, those before it are undone: exit status 9 is one that could not be.",
	  vm_migrate_options, 0, 0, 0, gantry_ctl_vm_libvirt },
	{ "vm", "args", "TENANT", 1, 1, "print what gives a tenant's door to a virtual machine",
	  "For machines that libvirt does not know, and to be put into definitions by hand.",
	  vm_args_options, GANTRY_WORDS_TENANT, 0, 0, gantry_ctl_vm_args },

	{ "peer", "ping", "PATH", 1, 1, "ask another agent who it is, at its peer socket", NULL,
	  NULL, GANTRY_WORDS_FILE, 0, 0, gantry_ctl_peer_ping },

	{ "completion", NULL, "bash", 1, 1, "print the completion script of a shell",
	  "For one shell: source <(gantryctl completion bash)", NULL, GANTRY_WORDS_SHELL, 0, 0,
	  gantry_ctl_completion },
	{ "version", NULL, "", 0, 0, "print the versions of gantryctl and of the agent", NULL, NULL,
	  0, 0, 0, gantry_ctl_version },
	{ "help", NULL, "[NOUN [VERB]]", 0, 2, "tell what there is", NULL, help_options,
	  GANTRY_WORDS_NOUN, 0, 0, gantry_ctl_help },
	{ "complete", NULL, "[WORD...]", 0, -1, "words that may follow, for the completion script",
	  NULL, NULL, 0, 1, 1, gantry_ctl_complete },
};
const size_t gantry_nverbs = GANTRY_ARRAY_SIZE(gantry_verbs);

const struct gantry_verb *gantry_verb_find(const char *noun, const char *verb, int *ret_words)
{
	for (size_t i = 0; i < gantry_nverbs; i++) {
		const struct gantry_verb *v = &gantry_verbs[i];

		if (strcmp(v->noun, noun) != 0)
			continue;
		if (v->verb && !(verb && strcmp(v->verb, verb) == 0))
			continue;
		*ret_words = v->verb ? 2 : 1;
		return v;
	}
	return NULL;
}

bool gantry_noun_known(const char *noun)
{
	for (size_t i = 0; i < gantry_nverbs; i++)
		if (strcmp(gantry_verbs[i].noun, noun) == 0)
			return true;
	return false;
}

void gantry_verb_name(const struct gantry_verb *verb, char *buf, size_t cap)
{
	/* Names are short; a cut one would still be readable. */
	(void)gantry_str_format(buf, cap, "%s%s%s", verb->noun, verb->verb ? " " : "",
				verb->verb ? verb->verb : "");
}
