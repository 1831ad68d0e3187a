/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/policy/packet.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "host-agent/policy/builtin.h"

#define VIEW_MAGIC    0x5657594c4f504e47ull
#define CHOICES_MAGIC 0x4843594c4f504e47ull

struct view_head {
	uint64_t magic;
	uint64_t number;
	struct gantry_policy_view view; /* its pointers mean nothing */
};
static_assert(sizeof(struct view_head) <= 1024, "a packet has room for it");

struct choices_head {
	uint64_t magic;
	uint64_t number;
	int32_t status;
	uint32_t n;
};

static size_t put(void *buf, size_t at, const void *from, size_t bytes)
{
	if (bytes)
		memcpy((char *)buf + at, from, bytes);
	return at + bytes;
}

size_t gantry_policy_view_pack(const struct gantry_policy_view *view, uint64_t number, void *buf)
{
	struct view_head head = { .magic = VIEW_MAGIC, .number = number, .view = *view };
	size_t at;

	head.view.devices = NULL;
	head.view.tenants = NULL;
	head.view.queues = NULL;
	at = put(buf, 0, &head, sizeof(head));
	at = put(buf, at, view->devices, view->ndevices * sizeof(*view->devices));
	at = put(buf, at, view->tenants, view->ntenants * sizeof(*view->tenants));
	return put(buf, at, view->queues, view->nqueues * sizeof(*view->queues));
}

static size_t get(void *to, const void *buf, size_t at, size_t bytes)
{
	memcpy(to, (const char *)buf + at, bytes);
	return at + bytes;
}

int gantry_policy_view_unpack(const void *buf, size_t len, uint64_t *ret_number,
			      struct gantry_policy_arrays *a)
{
	const struct gantry_policy_view *v = &a->view;
	struct view_head head;
	size_t at;

	if (len < sizeof(head))
		return -EINVAL;
	at = get(&head, buf, 0, sizeof(head));
	if (head.magic != VIEW_MAGIC || head.view.ndevices > GANTRY_POLICY_MAX_DEVICES ||
	    head.view.ntenants > GANTRY_POLICY_MAX_TENANTS ||
	    head.view.nqueues > GANTRY_POLICY_MAX_QUEUES)
		return -EINVAL;
	a->view = head.view;
	a->view.devices = a->devices;
	a->view.tenants = a->tenants;
	a->view.queues = a->queues;
	if (len != at + v->ndevices * sizeof(*v->devices) + v->ntenants * sizeof(*v->tenants) +
			   v->nqueues * sizeof(*v->queues))
		return -EINVAL;
	at = get(a->devices, buf, at, v->ndevices * sizeof(*v->devices));
	at = get(a->tenants, buf, at, v->ntenants * sizeof(*v->tenants));
	(void)get(a->queues, buf, at, v->nqueues * sizeof(*v->queues)); /* the end */
	*ret_number = head.number;
	return gantry_policy_view_check(v, NULL);
}

size_t gantry_policy_choices_pack(const struct gantry_policy_choice *choices, uint32_t n,
				  int status, uint64_t number, void *buf)
{
	const struct choices_head head = {
		.magic = CHOICES_MAGIC, .number = number, .status = status, .n = n
	};
	size_t at = put(buf, 0, &head, sizeof(head));

	return put(buf, at, choices, n * sizeof(*choices));
}

int gantry_policy_choices_unpack(const void *buf, size_t len, uint64_t number, uint32_t n,
				 struct gantry_policy_choice *ret_choices, struct gantry_err *err)
{
	struct choices_head head;

	if (len < sizeof(head))
		return gantry_err_set(err, -EINVAL, "it answered %zu bytes, which say nothing",
				      len);
	(void)get(&head, buf, 0, sizeof(head)); /* the next line begins behind it */
	if (head.magic != CHOICES_MAGIC || head.number != number || head.n != n ||
	    len != sizeof(head) + n * sizeof(*ret_choices))
		return gantry_err_set(err, -EINVAL, "it answered what was not asked");
	if (head.status < 0)
		return gantry_err_set_errno(err, head.status, "it could not decide");
	(void)get(ret_choices, buf, sizeof(head), n * sizeof(*ret_choices)); /* the end */
	return 0;
}

int gantry_policy_hello_unpack(const void *buf, size_t len, struct gantry_policy_hello *ret_hello,
			       struct gantry_err *err)
{
	struct gantry_policy_hello hello;

	if (len != sizeof(hello))
		return gantry_err_set(err, -EINVAL, "it said %zu bytes that are no greeting", len);
	memcpy(&hello, buf, sizeof(hello));
	hello.name[sizeof(hello.name) - 1] = '\0';
	hello.summary[sizeof(hello.summary) - 1] = '\0';
	hello.text[sizeof(hello.text) - 1] = '\0';
	gantry_str_make_printable(hello.name);
	gantry_str_make_printable(hello.summary);
	gantry_str_make_printable(hello.text);
	if (hello.status < 0)
		return gantry_err_set(err, -EINVAL, "%s", hello.text);
	if (hello.abi != GANTRY_POLICY_ABI)
		return gantry_err_set(err, -EINVAL, "it is of ABI %u, this agent of %u", hello.abi,
				      GANTRY_POLICY_ABI);
	*ret_hello = hello;
	return 0;
}
