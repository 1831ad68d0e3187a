/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delay filter: holds completions back.
 *
 * Options: delay.time=DURATION of real time, delay.polls=N calls of poll(), or both; the latter is
 * deterministic and fits simulated devices. device_ns stays what the device measured.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "devices/filter.h"

/*
 * Completions held; beyond, they stay in the device, whose own limits then apply. A power of two.
 */
#define DEPTH 1024u

struct held {
	struct gantry_done done;
	uint64_t due_ns;
	uint64_t due_poll;
};

struct gantry_dev {
	struct gantry_filter_dev filter; /* first: devices/filter.h */
	const struct gantry_device_host *host;
	uint64_t delay_ns;
	uint64_t delay_polls;
	uint64_t npolls;
	uint32_t head;
	uint32_t tail;
	struct held held[DEPTH];
};

/* Takes what the device has finished. */
static void collect(struct gantry_dev *dev, uint64_t now_ns)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_done done[32];
	unsigned int room = DEPTH - (dev->tail - dev->head);
	unsigned int count = next->backend->poll(next->dev, done, room < 32 ? room : 32);

	for (unsigned int i = 0; i < count; i++)
		dev->held[dev->tail++ % DEPTH] = (struct held){
			.done = done[i],
			.due_ns = now_ns + dev->delay_ns,
			.due_poll = dev->npolls + dev->delay_polls,
		};
}

static unsigned delay_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	uint64_t now_ns = dev->delay_ns ? gantry_now_ns() : 0;
	unsigned count = 0;

	dev->npolls++;
	collect(dev, now_ns);
	/* All wait equally long, so the first in is the first due. */
	while (count < n && dev->head != dev->tail) {
		const struct held *held = &dev->held[dev->head % DEPTH];

		if (held->due_ns > now_ns || held->due_poll > dev->npolls)
			break;
		ret_done[count++] = held->done;
		dev->head++;
	}
	/* Nobody else knows that there is more to come; a filter for tests may keep a thread busy. */
	if (dev->head != dev->tail)
		dev->host->wake(dev->host->cookie);
	return count;
}

static void delay_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_device_close(&dev->filter.next);
	free(dev);
}

static int parse_options(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			 struct gantry_err *err)
{
	const char *time = gantry_device_opt(conf, "delay.time");
	const char *polls = gantry_device_opt(conf, "delay.polls");
	int r = 0;

	if (time)
		r = gantry_duration_parse(time, &dev->delay_ns, err);
	if (r < 0)
		return gantry_err_wrap(err, -EINVAL, "delay.time");
	if (polls)
		r = gantry_u64_parse(polls, 0, UINT32_MAX, &dev->delay_polls, err);
	return r < 0 ? gantry_err_wrap(err, -EINVAL, "delay.polls") : 0;
}

static int delay_open(const struct gantry_filter_next *next, const struct gantry_device_conf *conf,
		      const struct gantry_device_host *host, struct gantry_device *ret_device,
		      struct gantry_err *err)
{
	_cleanup_free_ struct gantry_dev *dev = calloc(1, sizeof(*dev));
	struct gantry_device below;
	int r;

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for the delay filter");
	dev->host = host;
	r = parse_options(conf, dev, err);
	if (r == 0)
		r = gantry_filter_open_next(next, conf, host, &below, err);
	if (r < 0)
		return r;
	gantry_filter_init(&dev->filter, &below, delay_close);
	dev->filter.ops.poll = delay_poll;
	*ret_device = (struct gantry_device){ &dev->filter.ops, dev, below.info };
	dev = NULL; /* the device owns it now */
	return 0;
}

const struct gantry_filter gantry_filter_delay = { .name = "delay", .open = delay_open };
