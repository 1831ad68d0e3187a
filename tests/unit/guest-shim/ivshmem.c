/* SPDX-License-Identifier: Apache-2.0 */
/* What is the ivshmem door's own: finding a device, claims and their locks, devices that lie or go away. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest-shim/desk.h"
#include "guest-shim/interrupt.h"
#include "guest-shim/session.h"
#include "guest-shim/sockets.h"
#include "guest-shim/view.h"
#include "tests/unit/guest-shim/fake_door.h"
#include "tests/unit/guest-shim/fake_ivshmem.h"
#include "tests/unit/runner.h"

static const struct gantry_limits hasty = { .call_timeout_ns = 200000000 };
static const struct gantry_limits patient = { .call_timeout_ns = 10000000000 };

static struct fake_host host;
static struct fake_ivshmem *iv;

static void setup(void)
{
	fake_host_init(&host);
	host.door = &fake_door_ivshmem;
	fake_host_start(&host);
	iv = fake_ivshmem_of(&host);
}

static void teardown(void)
{
	fake_host_stop(&host);
}

static void expect_open(int status, const char *part)
{
	struct gantry_session *s = (void *)1;

	ck_assert_int_eq(gantry_open(host.where, &hasty, &s), status);
	ck_assert_ptr_eq(s, (void *)1);
	ck_assert_msg(strstr(gantry_last_error(), part), "'%s' has no '%s'", gantry_last_error(),
		      part);
}

static struct gantry_session *open_session(void)
{
	struct gantry_session *s;

	ck_assert_msg(gantry_open(host.where, &patient, &s) == 0, "%s", gantry_last_error());
	return s;
}

/* ---- finding a device ---- */

struct sysfs {
	char root[64];
	char *devices[4];
	unsigned int n;
};

static void put_file(const char *folder, const char *name, const char *text)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	ck_assert_int_eq(gantry_file_replace(path, text, strlen(text), 0644), 0);
}

static void make_sysfs(struct sysfs *fs)
{
	*fs = (struct sysfs){ .root = "/tmp/gantry-unit-pci-XXXXXX" };
	ck_assert_ptr_nonnull(mkdtemp(fs->root));
}

/* A device of the fake host's memory, at @address. */
static const char *add_device(struct sysfs *fs, const char *address, const char *vendor)
{
	char path[200], target[200];
	char *folder;

	ck_assert_int_gt(asprintf(&folder, "%s/%s", fs->root, address), 0);
	fs->devices[fs->n++] = folder;
	ck_assert_int_eq(mkdir(folder, 0755), 0);
	put_file(folder, "vendor", vendor);
	put_file(folder, "device", "0x1110\n");
	put_file(folder, "enable", "1\n");
	put_file(folder, "resource",
		 "0x00000000febf1000 0x00000000febf10ff 0x0000000000040200\n"
		 "0x00000000febf2000 0x00000000febf2fff 0x0000000000040200\n"
		 "0x000000fe00000000 0x000000fe00ffffff 0x000000000014220c\n");
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "resource2" : "doorbell";

		snprintf(path, sizeof(path), "%s/%s", folder, name);
		snprintf(target, sizeof(target), "%s/%s", iv->folder, name);
		ck_assert_int_eq(symlink(target, path), 0);
	}
	return folder;
}

static void remove_sysfs(const struct sysfs *fs)
{
	static const char *const names[] = { "vendor",	 "device",    "enable",
					     "resource", "resource2", "doorbell" };
	char path[200];

	for (unsigned int i = 0; i < fs->n; i++) {
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			snprintf(path, sizeof(path), "%s/%s", fs->devices[i], names[k]);
			unlink(path);
		}
		rmdir(fs->devices[i]);
		free(fs->devices[i]);
	}
	ck_assert_int_eq(rmdir(fs->root), 0);
}

START_TEST(test_find_one_device_is_found_among_others)
{
	struct gantry_pcidev dev;
	struct sysfs fs;

	make_sysfs(&fs);
	add_device(&fs, "0000:00:02.0", "0x8086\n");
	add_device(&fs, "0000:00:05.0", "0x1af4\n");
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "", &dev), 0);
	ck_assert_str_eq(strrchr(dev.folder, '/'), "/0000:00:05.0");
	ck_assert_uint_eq(dev.address, 0xfe00000000);
	ck_assert_uint_eq(dev.header.epoch, 7);
	gantry_pcidev_close(&dev, false);
	remove_sysfs(&fs);
}
END_TEST

START_TEST(test_find_two_devices_asks_for_a_name_and_lists_them)
{
	struct gantry_pcidev dev;
	struct sysfs fs;

	make_sysfs(&fs);
	add_device(&fs, "0000:00:05.0", "0x1af4\n");
	add_device(&fs, "0000:00:06.0", "0x1af4\n");
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "", &dev), GANTRY_E_ARG);
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "2 devices"));
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "0000:00:05.0"));
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "0000:00:06.0"));
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "0000:00:06.0", &dev), 0);
	gantry_pcidev_close(&dev, false);
	remove_sysfs(&fs);
}
END_TEST

START_TEST(test_find_no_device_says_who_attaches_one)
{
	struct gantry_pcidev dev;
	struct sysfs fs;

	make_sysfs(&fs);
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "", &dev), GANTRY_E_NO_AGENT);
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "no ivshmem device"));
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "0000:00:05.0", &dev), GANTRY_E_NO_AGENT);
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "../x", &dev), GANTRY_E_ARG);
	remove_sysfs(&fs);
}
END_TEST

START_TEST(test_find_device_without_address_says_what_to_change)
{
	static const char *const bars[] = {
		"0 0 0\n0 0 0\n0x0000000000000000 0x0000000003ffffff 0x000000000014220c\n",
		"0 0 0\n0 0 0\n0x000000fe00000000 0x000000fe03ffffff 0x000000002014220c\n",
	};
	struct gantry_pcidev dev;
	const char *folder;
	struct sysfs fs;

	make_sysfs(&fs);
	folder = add_device(&fs, "0000:00:05.0", "0x1af4\n");
	put_file(folder, "resource", bars[_i]);
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "", &dev), GANTRY_E_NO_AGENT);
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "pref64-reserve"));
	remove_sysfs(&fs);
}
END_TEST

START_TEST(test_find_device_that_is_not_enabled_is_enabled)
{
	_cleanup_free_ char *text = NULL;
	struct gantry_pcidev dev;
	const char *folder;
	struct sysfs fs;
	char path[200];

	make_sysfs(&fs);
	folder = add_device(&fs, "0000:00:05.0", "0x1af4\n");
	put_file(folder, "enable", "0\n");
	ck_assert_int_eq(gantry_pcidev_open(fs.root, "", &dev), 0);
	gantry_pcidev_close(&dev, false);
	snprintf(path, sizeof(path), "%s/enable", folder);
	ck_assert_int_eq(gantry_file_read(path, 10, &text, NULL), 0);
	ck_assert_int_eq(text[0], '1');
	remove_sysfs(&fs);
}
END_TEST

static int find_as_nobody(const char *root)
{
	struct gantry_pcidev dev;

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	if (gantry_pcidev_open(root, "", &dev) != GANTRY_E_DENIED)
		return 2;
	return strstr(gantry_last_error(), "udev") || strstr(gantry_last_error(), "root") ? 0 : 3;
}

/* The exit status of a child that does @what with @arg. */
static int in_child(int (*what)(const char *arg), const char *arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(what(arg));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "the child died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

START_TEST(test_find_without_permission_names_the_rule)
{
	struct sysfs fs;
	struct stat root;
	const char *folder;

	if (getuid() != 0)
		gantry_unit_skip("only root can become another user");
	if (stat("/", &root) == 0 && !(root.st_mode & S_IXOTH))
		gantry_unit_skip("the root folder is closed to other users");
	make_sysfs(&fs);
	chmod(fs.root, 0755);
	folder = add_device(&fs, "0000:00:05.0", "0x1af4\n");
	ck_assert_int_eq(in_child(find_as_nobody, fs.root), 0);
	put_file(folder, "enable", "0\n");
	ck_assert_int_eq(in_child(find_as_nobody, fs.root), 0);
	remove_sysfs(&fs);
}
END_TEST

START_TEST(test_open_file_that_could_shrink_is_refused)
{
	char path[108];

	snprintf(path, sizeof(path), "%s/resource2", iv->folder);
	ck_assert_int_eq(unlink(path), 0);
	put_file(iv->folder, "resource2", "not sealed");
	expect_open(GANTRY_E_PROTOCOL, "sealed");
}
END_TEST

/* ---- memory that lies ---- */

#define LIE(name, statement)                                    \
	static void lie_##name(struct gantry_doormem_header *h) \
	{                                                       \
		statement;                                      \
	}
LIE(bytes, h->bytes *= 2)
LIE(no_desks, h->ndesks = 0)
LIE(many_desks, h->ndesks = 65)
LIE(desks_on_header, h->desks_off = 0)
LIE(desks_crooked, h->desks_off += 64)
LIE(desks_far, h->desks_off = UINT64_MAX & ~4095ull)
LIE(desks_on_data, h->desks_off = FAKE_DATA_OFF - 4096)
LIE(data_far, h->data_off = 1ull << 60)
LIE(data_none, h->data_off = 0)
LIE(data_crooked, h->data_off += 4096)
LIE(vectors_none, h->nvectors = 0)
LIE(vectors_many, h->nvectors = 17)

static void (*const lies[])(struct gantry_doormem_header *h) = {
	lie_bytes,	   lie_no_desks,     lie_many_desks,	lie_desks_on_header,
	lie_desks_crooked, lie_desks_far,    lie_desks_on_data, lie_data_far,
	lie_data_none,	   lie_data_crooked, lie_vectors_none,	lie_vectors_many,
};

START_TEST(test_open_header_that_lies_is_refused)
{
	lies[_i](iv->header);
	expect_open(GANTRY_E_PROTOCOL, "makes no sense");
}
END_TEST

START_TEST(test_open_other_states_and_versions_say_so)
{
	iv->header->state = GANTRY_DOORMEM_DRAIN;
	expect_open(GANTRY_E_NO_AGENT, "unplugged");
	iv->header->state = GANTRY_DOORMEM_CLOSED;
	expect_open(GANTRY_E_NO_AGENT, "closed");
	iv->header->version = 2;
	expect_open(GANTRY_E_VERSION, "version 2");
	iv->header->magic = 0;
	expect_open(GANTRY_E_NO_AGENT, "no agent's");
}
END_TEST

/* A host that writes what it likes, wherever it may, must not bring the guest down. */
START_TEST(test_open_random_desks_never_crash)
{
	uint32_t seed = 12345 + (uint32_t)_i;

	gantry_store_relaxed(&iv->is_deaf, 1);
	while (!gantry_load_acquire(&iv->is_still))
		usleep(1000);
	for (int n = 0; n < 20; n++) {
		struct gantry_limits short_one = { .call_timeout_ns = 3000000 };
		struct gantry_session *s = NULL;

		for (uint32_t i = 0; i < FAKE_NDESKS; i++) {
			uint8_t *desk = (uint8_t *)fake_ivshmem_desk(&host, i);

			for (uint32_t k = 0; k < 1024; k++) {
				seed = seed * 1664525 + 1013904223;
				desk[k] = (uint8_t)(seed >> 24);
			}
		}
		ck_assert_int_lt(gantry_open(host.where, &short_one, &s), 0);
	}
}
END_TEST

/* ---- claims ---- */

static unsigned int claims(void)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < FAKE_NDESKS; i++)
		n += gantry_load_relaxed(&fake_ivshmem_desk(&host, i)->generation) & 1;
	return n;
}

START_TEST(test_close_gives_the_claim_back)
{
	struct gantry_session *s = open_session();

	ck_assert_uint_eq(claims(), 1);
	gantry_close(s);
	ck_assert_uint_eq(claims(), 0);
}
END_TEST

START_TEST(test_claim_says_who_and_how)
{
	struct gantry_session *s = open_session();
	const struct gantry_doormem_desk *desk = fake_ivshmem_served(&host);

	ck_assert_uint_eq(desk->pid, (uint32_t)getpid());
	ck_assert_uint_eq(desk->wake, GANTRY_WAKE_POLL);
	ck_assert_uint_eq(desk->mapping, GANTRY_MAPPING_RESOURCE);
	ck_assert_uint_gt(desk->read_mib_per_s, 0);
	ck_assert_uint_gt(desk->write_mib_per_s, 0);
	gantry_close(s);
}
END_TEST

START_TEST(test_claim_when_all_desks_are_taken_returns_full)
{
	struct gantry_pcidev devs[FAKE_NDESKS];
	struct gantry_desk desks[FAKE_NDESKS];

	for (uint32_t i = 0; i < FAKE_NDESKS; i++) {
		/* Each of a descriptor of its own, as other processes' would be. */
		ck_assert_int_eq(gantry_pcidev_open("/nonexistent", iv->folder, &devs[i]), 0);
		ck_assert_int_eq(gantry_desk_open(&devs[i], 0, 0, &desks[i]), 0);
		for (uint32_t k = 0; k < i; k++)
			ck_assert_uint_ne(desks[i].index, desks[k].index);
	}
	expect_open(GANTRY_E_FULL, "no more desks");
	for (uint32_t i = 0; i < FAKE_NDESKS; i++) {
		gantry_desk_close(&desks[i], false);
		gantry_pcidev_close(&devs[i], false);
	}
	gantry_close(open_session());
}
END_TEST

static int claim_and_die(const char *unused)
{
	struct gantry_session *s;

	(void)unused;
	return gantry_open(host.where, &patient, &s) == 0 ? 0 : 1; /* and no close */
}

static int claim_two_and_die(const char *folder)
{
	struct gantry_pcidev devs[2];
	struct gantry_desk desks[2];

	for (int i = 0; i < 2; i++)
		if (gantry_pcidev_open("/nonexistent", folder, &devs[i]) < 0 ||
		    gantry_desk_open(&devs[i], 0, 0, &desks[i]) < 0)
			return 1;
	return 0;
}

START_TEST(test_claims_of_dead_processes_are_cleared)
{
	struct gantry_session *s;

	ck_assert_int_eq(in_child(claim_two_and_die, iv->folder), 0);
	ck_assert_uint_eq(claims(), 2);
	s = open_session();
	ck_assert_uint_eq(claims(), 1);
	gantry_close(s);
	ck_assert_uint_eq(claims(), 0);
}
END_TEST

START_TEST(test_claims_that_cannot_be_judged_are_left_alone)
{
	struct gantry_doormem_desk *desk;

	ck_assert_int_eq(in_child(claim_and_die, NULL), 0);
	desk = fake_ivshmem_served(&host);
	desk->lock_space++;
	gantry_close(open_session());
	ck_assert_uint_eq(claims(), 1); /* somebody else's locks may hold it */
	desk->boot_id[0]++;
	gantry_close(open_session());
	ck_assert_uint_eq(claims(), 0); /* it was of another boot */
}
END_TEST

START_TEST(test_claim_the_host_forgot_is_made_anew)
{
	gantry_store_relaxed(&iv->nforgets, 2);
	gantry_close(open_session());
	ck_assert_uint_eq(gantry_load_relaxed(&iv->nclaims), 3);
}
END_TEST

START_TEST(test_claim_nobody_serves_times_out_and_is_given_back)
{
	gantry_store_relaxed(&iv->is_deaf, 1);
	expect_open(GANTRY_E_NO_AGENT, "in time");
	ck_assert_uint_eq(claims(), 0);
}
END_TEST

static int hold_on(const char *fds)
{
	int in = fds[0], out = fds[1];
	char c = 'x';

	(void)!write(out, &c, 1); /* the child is there */
	(void)!read(in, &c, 1);	  /* until the test ends it */
	return 0;
}

/* The parent of a child that did not exec ends; what the child copied must not keep the claim. */
START_TEST(test_fork_child_does_not_keep_the_claim)
{
	int up[2], down[2], status;
	char c;
	pid_t parent, got;

	ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
	parent = fork();
	if (parent == 0) {
		const char fds[2] = { (char)down[0], (char)up[1] };
		struct gantry_session *s;

		if (gantry_open(host.where, &patient, &s) < 0)
			_exit(1);
		if (fork() == 0)
			_exit(hold_on(fds));
		_exit(0);
	}
	got = waitpid(parent, &status, 0);
	ck_assert_int_eq(got, parent);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(up[0], &c, 1), 1); /* the grandchild lives */
	ck_assert_uint_eq(claims(), 1);
	gantry_close(open_session());
	ck_assert_uint_eq(claims(), 0);
	ck_assert_int_eq(write(down[1], &c, 1), 1);
	for (int i = 0; i < 2; i++) {
		close(up[i]);
		close(down[i]);
	}
}
END_TEST

static int open_without_stdio(const char *path)
{
	int fds[3];

	for (int i = 0; i < 3; i++)
		close(i);
	for (int i = 0; i < 3; i++)
		fds[i] = gantry_open_above_stdio(path);
	for (int i = 0; i < 3; i++)
		if (fds[i] <= STDERR_FILENO || !(fcntl(fds[i], F_GETFD) & FD_CLOEXEC))
			return 1;
	return 0;
}

/* A program that closed them prints into what takes their place: a doorbell, or all of the machine's memory. */
START_TEST(test_devices_files_stay_clear_of_stdio)
{
	ck_assert_int_eq(in_child(open_without_stdio, "/dev/null"), 0);
	ck_assert_int_eq(gantry_open_above_stdio("/nonexistent"), -ENOENT);
}
END_TEST

/* ---- the session's life ---- */

START_TEST(test_answer_that_is_no_message_says_so)
{
	struct gantry_door_share msg = { .buffer = 7, .mode = GANTRY_R };
	struct gantry_session *s = open_session();
	struct gantry_doormem_desk *desk = fake_ivshmem_served(&host);
	struct gantry_door_shared answer;

	gantry_store_relaxed(&host.mute_door, 1);
	memset(desk->host_box, 0xff, sizeof(desk->host_box));
	gantry_store_release(&desk->host_posted, gantry_load_relaxed(&desk->host_posted) + 1);
	gantry_door_header_init(&msg.h, GANTRY_DOOR_SHARE, 0);
	ck_assert_int_eq(s->transport->request(s->cookie, &msg, GANTRY_DOOR_SHARED, &answer,
					       gantry_deadline_ns(5000000000)),
			 GANTRY_E_PROTOCOL);
	gantry_close(s);
}
END_TEST

static void expect_end(struct gantry_session *s, gantry_ticket ticket, const char *part)
{
	ck_assert_int_eq(gantry_wait(s, &ticket, 1, 5000000000), GANTRY_E_DETACHED);
	ck_assert_msg(strstr(gantry_last_error(), part), "'%s' has no '%s'", gantry_last_error(),
		      part);
	gantry_close(s);
}

/* What a hot-unplugged device's memory reads as. */
static void unplug(void)
{
	memset(iv->header, 0, sizeof(*iv->header));
}

static void close_door(void)
{
	gantry_store_relaxed(&iv->header->state, GANTRY_DOORMEM_CLOSED);
}

static void other_memory(void)
{
	iv->header->epoch++;
}

/* Another process, which had the interrupt, lets the device go; its memory may come back. */
static void depart(void)
{
	iv->header->departures++;
}

static void end_claim(void)
{
	gantry_store_release(&fake_ivshmem_served(&host)->served, 0);
}

static void end_with_words(void)
{
	fake_host_notice(&host, GANTRY_E_DETACHED, "the tenant was removed");
	end_claim();
}

static const struct {
	void (*happens)(void);
	const char *part;
} ends[] = {
	{ unplug, "unplugged" },       { close_door, "closed" },
	{ other_memory, "unplugged" }, { depart, "unplugged" },
	{ end_claim, "hung up" },      { end_with_words, "the tenant was removed" },
};

START_TEST(test_wait_notices_the_end_and_says_which)
{
	struct gantry_session *s = open_session();
	gantry_queue queue;
	gantry_ticket ticket;

	ck_assert_int_eq(gantry_queue_open(s, NULL, &queue), 0);
	gantry_store_relaxed(&host.hold_tasks, 1);
	ck_assert_int_eq(gantry_submit_marker(s, queue, &ticket), 0);
	ends[_i].happens();
	expect_end(s, ticket, ends[_i].part);
}
END_TEST

/* Behind a root port it reads as all ones, and that is more done than anything. */
static void unplug_to_ones(struct gantry_session *s, gantry_ticket ticket)
{
	gantry_store_release(&s->queues[GANTRY_TICKET_QUEUE(ticket)].ring.map.area->done,
			     UINT64_MAX);
	memset(iv->header, 0xff, sizeof(*iv->header));
}

START_TEST(test_wait_and_read_believe_no_memory_that_has_gone)
{
	struct gantry_session *s = open_session();
	gantry_queue queue;
	gantry_ticket ticket;
	gantry_buffer buffer;
	uint64_t word = 0;

	ck_assert_int_eq(gantry_queue_open(s, NULL, &queue), 0);
	ck_assert_int_eq(gantry_alloc(s, 4096, GANTRY_ALLOC_HOST, &buffer), 0);
	ck_assert_int_eq(gantry_read(s, buffer, 0, &word, sizeof(word)), 0);
	gantry_store_relaxed(&host.hold_tasks, 1);
	ck_assert_int_eq(gantry_submit_marker(s, queue, &ticket), 0);
	unplug_to_ones(s, ticket);
	if (_i == 0)
		ck_assert_int_eq(gantry_wait(s, &ticket, 1, 5000000000), GANTRY_E_DETACHED);
	else
		ck_assert_int_eq(gantry_read(s, buffer, 0, &word, sizeof(word)), GANTRY_E_DETACHED);
	expect_end(s, ticket, "unplugged");
}
END_TEST

/* What was read, or written before, may have been lost in that moment. */
START_TEST(test_read_believes_nothing_after_a_departure)
{
	struct gantry_session *s = open_session();
	gantry_buffer buffer;
	uint64_t word = 0;

	ck_assert_int_eq(gantry_alloc(s, 4096, GANTRY_ALLOC_HOST, &buffer), 0);
	ck_assert_int_eq(gantry_read(s, buffer, 0, &word, sizeof(word)), 0);
	depart();
	ck_assert_int_eq(gantry_read(s, buffer, 0, &word, sizeof(word)), GANTRY_E_DETACHED);
	gantry_close(s);
}
END_TEST

/* A device that is reset before it goes reads so for a while, and is there again when that is asked. */
START_TEST(test_tasks_are_not_over_because_memory_was_away_for_a_moment)
{
	struct gantry_session *s = open_session();
	struct gantry_queue_area *area;
	gantry_queue queue;
	gantry_ticket ticket;

	ck_assert_int_eq(gantry_queue_open(s, NULL, &queue), 0);
	gantry_store_relaxed(&host.hold_tasks, 1);
	ck_assert_int_eq(gantry_submit_marker(s, queue, &ticket), 0);
	area = s->queues[GANTRY_TICKET_QUEUE(ticket)].ring.map.area;
	gantry_store_release(&area->done, UINT64_MAX);
	ck_assert_int_eq(gantry_test(s, ticket), 0);
	ck_assert_int_eq(gantry_wait(s, &ticket, 1, 0), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_wait(s, &ticket, 1, 20000000), GANTRY_E_TIMEOUT);
	gantry_store_release(&area->done, 0);
	gantry_store_relaxed(&host.hold_tasks, 0);
	ck_assert_int_eq(gantry_wait(s, &ticket, 1, GANTRY_FOREVER), 0);
	gantry_close(s);
}
END_TEST

/* A machine that migrated, or was given another device: the mapping shows what is at those addresses now. */
START_TEST(test_close_leaves_the_memory_of_another_device_alone)
{
	struct gantry_session *s = open_session();
	struct gantry_doormem_desk *desk = fake_ivshmem_served(&host);
	uint64_t generation = gantry_load_relaxed(&desk->generation);

	other_memory();
	gantry_close(s);
	ck_assert_uint_eq(gantry_load_relaxed(&desk->generation), generation);
}
END_TEST

START_TEST(test_session_goes_on_while_the_door_drains)
{
	struct gantry_session *s = open_session();
	gantry_queue queue;
	gantry_ticket ticket;

	ck_assert_int_eq(gantry_queue_open(s, NULL, &queue), 0);
	gantry_store_relaxed(&iv->header->state, GANTRY_DOORMEM_DRAIN);
	ck_assert_int_eq(gantry_submit_marker(s, queue, &ticket), 0);
	ck_assert_int_eq(gantry_wait(s, &ticket, 1, GANTRY_FOREVER), 0);
	gantry_close(s);
}
END_TEST

/* ---- which mapping ---- */

START_TEST(test_view_choose_takes_what_is_worth_it)
{
	struct gantry_view_speed same[GANTRY_MAPPING_VFIO] = {
		[GANTRY_MAPPING_RESOURCE] = { 1000, 1000 },
		[GANTRY_MAPPING_RESOURCE_WC] = { 1100, 1100 },
		[GANTRY_MAPPING_DEVMEM] = { 1100, 1100 },
	};
	struct gantry_view_speed uncached[GANTRY_MAPPING_VFIO] = {
		[GANTRY_MAPPING_RESOURCE] = { 40, 60 },
		[GANTRY_MAPPING_RESOURCE_WC] = { 50, 5000 },
		[GANTRY_MAPPING_DEVMEM] = { 9000, 9000 },
	};

	ck_assert_int_eq(gantry_view_choose(same), GANTRY_MAPPING_RESOURCE);
	ck_assert_int_eq(gantry_view_choose(uncached), GANTRY_MAPPING_DEVMEM);
	uncached[GANTRY_MAPPING_DEVMEM] = (struct gantry_view_speed){ 0 };
	ck_assert_int_eq(gantry_view_choose(uncached), GANTRY_MAPPING_RESOURCE_WC);
	uncached[GANTRY_MAPPING_RESOURCE_WC].read_mib_per_s = 10;
	ck_assert_int_eq(gantry_view_choose(uncached), GANTRY_MAPPING_RESOURCE);

	/* Where nothing was written, reads alone decide. */
	for (int i = 0; i < GANTRY_MAPPING_VFIO; i++)
		same[i].write_mib_per_s = 0;
	ck_assert_int_eq(gantry_view_choose(same), GANTRY_MAPPING_RESOURCE);
	same[GANTRY_MAPPING_DEVMEM].read_mib_per_s = 9000;
	ck_assert_int_eq(gantry_view_choose(same), GANTRY_MAPPING_DEVMEM);
}
END_TEST

START_TEST(test_map_split_segment_lies_side_by_side)
{
	struct gantry_session *s = open_session();
	struct gantry_attachment a = { .can_split = true,
				       .is_split = true,
				       .split_off = host.segment_off,
				       .segment_fd = -EBADF };
	struct gantry_session *split = calloc(1, sizeof(*split) + 64);
	struct gantry_transport_ops plain;

	/* The same segment once more, its heap by another descriptor; the door goes on with the first. */
	plain = *s->transport;
	plain.mapped = NULL;
	split->transport = &plain;
	a.welcome = (struct gantry_door_welcome){
		.version = 1,
		.session_id = 42,
		.segment_bytes = host.segment_bytes,
		.nqueues = host.nqueues,
		.nslots = host.nslots,
	};
	a.rings_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	a.heap_fd = dup(host.segment_fd);
	ck_assert_int_eq(gantry_session_map(split, &a), GANTRY_E_NO_MEMORY);
	gantry_fd_close(a.rings_fd);
	a.rings_fd = dup(host.segment_fd);
	ck_assert_int_eq(gantry_session_map(split, &a), 0);
	ck_assert(split->heap_is_loose);
	ck_assert_ptr_eq(split->heap_region.base, split->segment.base + split->header->heap_off);
	memcpy(host.heap + 100, "over there", 11);
	ck_assert_str_eq((char *)split->heap_region.base + 100, "over there");
	munmap(split->segment.base, split->segment.bytes);
	gantry_heap_fini(&split->heap);
	gantry_fd_close(a.rings_fd);
	gantry_fd_close(a.heap_fd);
	free(split);
	gantry_close(s);
}
END_TEST

/* The session's last bytes are somebody's: measuring, as for a fresh one, would leave zeros there. */
START_TEST(test_view_of_a_segment_in_use_changes_nothing)
{
	uint8_t *last = host.segment + host.segment_bytes - (256u << 10);
	struct gantry_attachment a = { 0 };
	struct gantry_pcidev dev;
	struct gantry_view view;

	ck_assert_int_eq(gantry_pcidev_open("/nonexistent", iv->folder, &dev), 0);
	memset(last, 0x5a, 256u << 10);
	ck_assert_int_eq(
		gantry_view_open(&dev, host.segment_off, host.segment_bytes, false, &a, &view), 0);
	gantry_fd_close(a.segment_fd);
	ck_assert_int_eq(view.kind, GANTRY_MAPPING_RESOURCE);
	ck_assert_uint_gt(view.read_mib_per_s, 0);
	ck_assert_uint_eq(view.write_mib_per_s, 0);
	ck_assert_uint_eq(last[0], 0x5a);
	ck_assert_mem_eq(last, last + 1, (256u << 10) - 1);
	gantry_pcidev_close(&dev, false);
}
END_TEST

START_TEST(test_adopt_leaves_the_heap_as_it_is)
{
	uint8_t *last = host.segment + host.segment_bytes - (256u << 10);
	uint8_t key[GANTRY_KEY_BYTES] = { 1 };
	struct gantry_session *s = NULL;

	memset(last, 0x5a, 256u << 10);
	/* The fake host has no such call. */
	(void)gantry_session_adopt(host.where, key, patient.call_timeout_ns, &s);
	ck_assert_uint_eq(gantry_load_relaxed(&fake_ivshmem_served(&host)->mapping),
			  GANTRY_MAPPING_RESOURCE);
	ck_assert_uint_eq(last[0], 0x5a);
	ck_assert_mem_eq(last, last + 1, (256u << 10) - 1);
	gantry_close(s);
}
END_TEST

/* ---- interrupts ---- */

START_TEST(test_interrupt_of_a_folder_is_none)
{
	struct gantry_interrupt interrupt;
	struct gantry_pcidev dev;
	uint64_t word = 0;

	ck_assert_int_eq(gantry_pcidev_open("/nonexistent", iv->folder, &dev), 0);
	ck_assert_int_lt(gantry_interrupt_open(&dev, &interrupt), 0);
	ck_assert(!gantry_interrupt_sleep(&interrupt, &word, 0, GANTRY_DEADLINE_NEVER));
	ck_assert(!gantry_interrupt_wanted_back(&interrupt));
	gantry_interrupt_close(&interrupt);
	gantry_pcidev_close(&dev, false);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
	TCase *tc = gantry_unit_case(suite, name);

	tcase_add_checked_fixture(tc, setup, teardown);
	return tc;
}

static void add_finding(Suite *suite)
{
	TCase *tc = add_case(suite, "finding");

	tcase_add_test(tc, test_find_one_device_is_found_among_others);
	tcase_add_test(tc, test_find_two_devices_asks_for_a_name_and_lists_them);
	tcase_add_test(tc, test_find_no_device_says_who_attaches_one);
	tcase_add_loop_test(tc, test_find_device_without_address_says_what_to_change, 0, 2);
	tcase_add_test(tc, test_find_device_that_is_not_enabled_is_enabled);
	tcase_add_test(tc, test_find_without_permission_names_the_rule);
	tcase_add_test(tc, test_open_file_that_could_shrink_is_refused);
	tcase_add_loop_test(tc, test_open_header_that_lies_is_refused, 0,
			    (int)(sizeof(lies) / sizeof(lies[0])));
	tcase_add_test(tc, test_open_other_states_and_versions_say_so);
	tcase_add_loop_test(tc, test_open_random_desks_never_crash, 0, 4);
}

static void add_claims(Suite *suite)
{
	TCase *tc = add_case(suite, "claims");

	tcase_add_test(tc, test_close_gives_the_claim_back);
	tcase_add_test(tc, test_claim_says_who_and_how);
	tcase_add_test(tc, test_claim_when_all_desks_are_taken_returns_full);
	tcase_add_test(tc, test_claims_of_dead_processes_are_cleared);
	tcase_add_test(tc, test_claims_that_cannot_be_judged_are_left_alone);
	tcase_add_test(tc, test_claim_the_host_forgot_is_made_anew);
	tcase_add_test(tc, test_claim_nobody_serves_times_out_and_is_given_back);
	tcase_add_test(tc, test_fork_child_does_not_keep_the_claim);
	tcase_add_test(tc, test_devices_files_stay_clear_of_stdio);
	tcase_add_test(tc, test_answer_that_is_no_message_says_so);
}

int main(void)
{
	Suite *suite = suite_create("guest-shim/ivshmem");
	TCase *tc;

	add_finding(suite);
	add_claims(suite);
	tc = add_case(suite, "life");
	tcase_add_loop_test(tc, test_wait_notices_the_end_and_says_which, 0,
			    (int)(sizeof(ends) / sizeof(ends[0])));
	tcase_add_loop_test(tc, test_wait_and_read_believe_no_memory_that_has_gone, 0, 2);
	tcase_add_test(tc, test_read_believes_nothing_after_a_departure);
	tcase_add_test(tc, test_tasks_are_not_over_because_memory_was_away_for_a_moment);
	tcase_add_test(tc, test_close_leaves_the_memory_of_another_device_alone);
	tcase_add_test(tc, test_session_goes_on_while_the_door_drains);
	tc = add_case(suite, "memory");
	tcase_add_test(tc, test_view_choose_takes_what_is_worth_it);
	tcase_add_test(tc, test_map_split_segment_lies_side_by_side);
	tcase_add_test(tc, test_view_of_a_segment_in_use_changes_nothing);
	tcase_add_test(tc, test_adopt_leaves_the_heap_as_it_is);
	tcase_add_test(tc, test_interrupt_of_a_folder_is_none);
	return gantry_unit_run(suite);
}
