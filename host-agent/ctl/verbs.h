/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of gantryctl: one table, from which dispatch, help, completion and the man page's list follow.
 * A verb is added by a line there and a handler.
 */
#ifndef GANTRY_HOST_AGENT_CTL_VERBS_H
#define GANTRY_HOST_AGENT_CTL_VERBS_H

#include <stdbool.h>
#include <stddef.h>

#include "admin.pb-c.h"

struct gantry_ctl;

/* What may stand somewhere on the command line: for completion. */
enum gantry_words {
	GANTRY_WORDS_NONE,
	GANTRY_WORDS_DEVICE,
	GANTRY_WORDS_TENANT,
	GANTRY_WORDS_SESSION,
	GANTRY_WORDS_QUEUE,
	GANTRY_WORDS_POLICY,
	GANTRY_WORDS_FILE,
	GANTRY_WORDS_SHELL,
	GANTRY_WORDS_ENGINE,
	GANTRY_WORDS_TRANSPORT,
	GANTRY_WORDS_VM_FORMAT,
	GANTRY_WORDS_RECIPES,
	GANTRY_WORDS_NOUN,
};

/* A list ends with a name of NULL. */
struct gantry_verb_option {
	const char *name;    /* without its dashes */
	const char *metavar; /* NULL: a flag */
	const char *help;
	enum gantry_words words;
};

struct gantry_verb {
	const char *noun;
	const char *verb; /* NULL: the noun stands alone */
	const char *args; /* as help shows them */
	int min_args;
	int max_args; /* -1: any number */
	const char *summary;
	const char *detail; /* further sentences; NULL: none */
	const struct gantry_verb_option *options;
	enum gantry_words words; /* of the first argument */
	bool command;		 /* what follows the first argument is another program's */
	bool hidden;		 /* for scripts, not in help */
	int (*run)(struct gantry_ctl *ctl);
};

extern const struct gantry_verb gantry_verbs[];
extern const size_t gantry_nverbs;
extern const struct gantry_verb_option gantry_global_options[];

/* NULL: none. A noun that stands alone is found with any @verb; *@ret_words is how many words name the verb. */
const struct gantry_verb *gantry_verb_find(const char *noun, const char *verb, int *ret_words);
bool gantry_noun_known(const char *noun);

/* "device list" */
void gantry_verb_name(const struct gantry_verb *verb, char *buf, size_t cap);

/* Handlers, by the file that holds them. */

/* objects.c */
int gantry_ctl_device_list(struct gantry_ctl *ctl);
int gantry_ctl_device_show(struct gantry_ctl *ctl);
int gantry_ctl_device_enable(struct gantry_ctl *ctl);
int gantry_ctl_device_disable(struct gantry_ctl *ctl);
int gantry_ctl_device_drain(struct gantry_ctl *ctl);
int gantry_ctl_tenant_list(struct gantry_ctl *ctl);
int gantry_ctl_tenant_show(struct gantry_ctl *ctl);
int gantry_ctl_tenant_remove(struct gantry_ctl *ctl);
int gantry_ctl_session_list(struct gantry_ctl *ctl);
int gantry_ctl_session_show(struct gantry_ctl *ctl);
int gantry_ctl_session_kick(struct gantry_ctl *ctl);
int gantry_ctl_queue_list(struct gantry_ctl *ctl);
int gantry_ctl_queue_show(struct gantry_ctl *ctl);
int gantry_ctl_queue_pause(struct gantry_ctl *ctl);
int gantry_ctl_queue_resume(struct gantry_ctl *ctl);
int gantry_ctl_worker_list(struct gantry_ctl *ctl);
int gantry_ctl_policy_list(struct gantry_ctl *ctl);
int gantry_ctl_policy_show(struct gantry_ctl *ctl);
int gantry_ctl_group_list(struct gantry_ctl *ctl);
int gantry_ctl_kernel_list(struct gantry_ctl *ctl);
/*
 * Waits until the workers there are know the modules and images of now, for as long as --timeout says. 0, or what
 * gantry_ctl_fail() returned; @what: what was done all the same.
 */
int gantry_ctl_await_workers(struct gantry_ctl *ctl, const char *what);
int gantry_ctl_kernel_rescan(struct gantry_ctl *ctl);
int gantry_ctl_reload(struct gantry_ctl *ctl);
int gantry_ctl_version(struct gantry_ctl *ctl);

/* migrate.c */
int gantry_ctl_session_migrate(struct gantry_ctl *ctl);
int gantry_ctl_migration_list(struct gantry_ctl *ctl);
int gantry_ctl_migration_show(struct gantry_ctl *ctl);
/*
 * One migration, for who watches it to its end: an agent that dies or makes way for another meanwhile is waited for. 0
 * and a reply with it, to be freed, or NULL: another agent serves, which does not know it. Else an exit code, and why is told.
 */
int gantry_ctl_migration_look(struct gantry_ctl *ctl, uint64_t id,
			      Gantry__Admin__AdminReply **ret_reply);
int gantry_ctl_migration_cancel(struct gantry_ctl *ctl);
/* Nobody watches it any more, for --timeout is over: an exit code, and where to look is told. */
int gantry_ctl_fail_goes_on(struct gantry_ctl *ctl, uint64_t id);

/* queue_migrate.c */
/* session migrate to a device of this host, which --to names. */
int gantry_ctl_session_to_device(struct gantry_ctl *ctl, uint64_t session_id);
int gantry_ctl_queue_migrate(struct gantry_ctl *ctl);
/* The steps of a migration as a trace, or one a line. */
int gantry_ctl_migration_trace(struct gantry_ctl *ctl, const Gantry__Admin__Migration *m);
void gantry_ctl_migration_steps(struct gantry_ctl *ctl, const Gantry__Admin__Migration *m);

/* image.c */
int gantry_ctl_image_list(struct gantry_ctl *ctl);
int gantry_ctl_image_show(struct gantry_ctl *ctl);
int gantry_ctl_image_add(struct gantry_ctl *ctl);
int gantry_ctl_image_remove(struct gantry_ctl *ctl);

/* tenant_set.c */
extern const struct gantry_verb_option gantry_tenant_options[];
int gantry_ctl_tenant_create(struct gantry_ctl *ctl);
int gantry_ctl_tenant_set(struct gantry_ctl *ctl);

/* stats.c, top.c, events.c, doctor.c, peer.c, programs.c, cdi.c, vm.c, upgrade.c, help.c */
int gantry_ctl_stats(struct gantry_ctl *ctl);
int gantry_ctl_top(struct gantry_ctl *ctl);
int gantry_ctl_events(struct gantry_ctl *ctl);
int gantry_ctl_doctor(struct gantry_ctl *ctl);
int gantry_ctl_peer_ping(struct gantry_ctl *ctl);
int gantry_ctl_run(struct gantry_ctl *ctl);
int gantry_ctl_config_check(struct gantry_ctl *ctl);
int gantry_ctl_demo(struct gantry_ctl *ctl);
int gantry_ctl_cdi_generate(struct gantry_ctl *ctl);
int gantry_ctl_vm_args(struct gantry_ctl *ctl);
int gantry_ctl_vm_libvirt(struct gantry_ctl *ctl); /* becomes gantry-vm */
int gantry_ctl_agent_upgrade(struct gantry_ctl *ctl);
int gantry_ctl_help(struct gantry_ctl *ctl);
int gantry_ctl_completion(struct gantry_ctl *ctl);
int gantry_ctl_complete(struct gantry_ctl *ctl);

#endif
