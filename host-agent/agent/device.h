/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices as the agent sees them: a configured section, a share page, a state. It opens none.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: gantry_devices_apply() before gantry_tenants_apply(), whose masks need the indices.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DEVICE_H
#define GANTRY_HOST_AGENT_AGENT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/device.h"
#include "host-agent/agent/config.h"
#include "worker.pb-c.h"

struct gantry_agent;
struct gantry_worker;
struct gantry_share_page;

#define GANTRY_AGENT_MAX_DEVICES GANTRY_CONFIG_MAX_DEVICES

enum gantry_agent_device_state {
	GANTRY_DEVICE_ENABLED = 1, /* values as DeviceState of admin.proto */
	GANTRY_DEVICE_DISABLED = 2,
	GANTRY_DEVICE_DRAINING = 3,
	GANTRY_DEVICE_FAILED = 4,
};

/*
 * Its index is the same for the agent's workers and sessions, for ever: a removed device leaves a
 * hole.
 */
struct gantry_agent_device {
	struct gantry_agent *agent;
	struct gantry_device_section conf;
	bool used;	/* configured now */
	bool admin_off; /* disabled or drained by an administrator */
	uint32_t state; /* enum gantry_agent_device_state */
	struct gantry_share_page *page;
	int page_fd;
	/* as workers report it */
	uint32_t kind;
	uint32_t caps;
	uint32_t lanes;
	uint32_t units;
	uint64_t mem_bytes;
	uint64_t slab_align; /* 0: no windows, or not known yet */
	int32_t numa_node;
	char model[64];
	char id[48];
	char arch[16];
	char reason[160];
	/* of devices that a steward serves */
	bool no_room;	    /* the latest worker could not open it: no memory, or another has it */
	bool unhealthy;	    /* FAILED, as its health says */
	uint64_t health_ns; /* when it was last asked; 0: never */
	struct gantry_device_health health;
	uint64_t nfaults; /* contexts on it that failed */
};

int gantry_devices_apply(struct gantry_agent *a, const struct gantry_config *config,
			 struct gantry_err *err, bool *ret_changed);
void gantry_devices_fini(struct gantry_agent *a);
struct gantry_agent_device *gantry_agent_device_find(struct gantry_agent *a, const char *name);
/* Bits of the devices that a list of names means. */
uint64_t gantry_devices_mask(const struct gantry_agent *a, const char *names);
/* Bits of devices that serve now. */
uint64_t gantry_devices_serving(const struct gantry_agent *a);
/* @state: ENABLED, DISABLED or DRAINING. */
void gantry_agent_device_set(struct gantry_agent *a, struct gantry_agent_device *d, uint32_t state);
/* Which devices sessions may use now, after a change of devices or tenants. */
void gantry_devices_allow(struct gantry_agent *a);
/*
 * @fresh: the worker has served no guest yet; another is believed only where nothing is known. Of a device that a
 * steward serves, the steward's word counts: @steward. Returns the bits of devices in service that the worker could
 * not open.
 */
uint64_t gantry_devices_learn(struct gantry_agent *a, const Gantry__Worker__Ready *ready,
			      bool fresh, bool steward);
/* With whom sessions of @w have work on the device at once (gantry_share_set_party()). */
uint32_t gantry_device_party(const struct gantry_agent_device *d, const struct gantry_worker *w);
/* Memory of devices has come back: workers that had found none are replaced. */
void gantry_devices_room_again(struct gantry_agent *a);
/* What a steward says of device @idx's health. */
void gantry_device_health_learn(struct gantry_agent *a, uint32_t idx,
				const Gantry__Worker__DeviceHealth *health);
/* It is not there any more; a worker or steward that opens it says when it is back. */
void gantry_agent_device_lost(struct gantry_agent *a, struct gantry_agent_device *d,
			      const char *why);

#endif
