/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cuda/pages.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/list.h"

/* One line of /proc/self/maps. */
struct mapping {
	uintptr_t begin;
	uintptr_t end;
	unsigned long off; /* in its file */
	unsigned int major, minor;
	unsigned long inode;
	bool is_writable; /* and readable */
	bool is_plain;	  /* private, no file, no stack, not to be executed */
};

/* Pages of the program's that are shared memory. */
struct pages {
	struct gantry_list link;
	uint8_t *at;
	const uint8_t *shared; /* the same memory under our own address, which nobody takes away */
	size_t bytes;
	struct mapping file; /* how a mapping would be listed that begins at @at */
};

/* What a child that is being made gets in their place. */
struct part {
	struct gantry_list link;
	void *copy;
	void *at;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of both; while a child is made, too */
static struct gantry_list all = GANTRY_LIST_INIT(all);
static struct gantry_list parts = GANTRY_LIST_INIT(parts);

static bool read_line(const char *line, struct mapping *ret_mapping)
{
	unsigned long begin, end, off, inode;
	unsigned int major, minor;
	char rights[8];
	int at = 0;

	if (sscanf(line, "%lx-%lx %7s %lx %x:%x %lu %n", &begin, &end, rights, &off, &major, &minor,
		   &inode, &at) != 7)
		return false;
	*ret_mapping = (struct mapping){
		.begin = begin,
		.end = end,
		.off = off,
		.major = major,
		.minor = minor,
		.inode = inode,
		.is_writable = rights[0] == 'r' && rights[1] == 'w',
		.is_plain = rights[2] == '-' && rights[3] == 'p' && inode == 0 &&
			    (!line[at] || line[at] == '\n' || !strncmp(line + at, "[heap]", 6) ||
			     !strncmp(line + at, "[anon:", 6)),
	};
	return true;
}

/* Whether all of it is mapped as it must be. */
static int look(const void *at, size_t bytes, bool must_be_plain)
{
	uintptr_t next = (uintptr_t)at, end;
	struct mapping mapping;
	char line[512];
	FILE *maps;

	if (bytes == 0 || __builtin_add_overflow(next, bytes, &end))
		return -EINVAL;
	maps = fopen("/proc/self/maps", "re");
	if (!maps)
		return -ENOMEM;
	/* They come in the order of addresses. */
	while (next < end && fgets(line, sizeof(line), maps)) {
		if (!read_line(line, &mapping) || mapping.end <= next)
			continue;
		if (mapping.begin > next || !mapping.is_writable ||
		    (must_be_plain && !mapping.is_plain))
			break;
		next = mapping.end;
	}
	(void)fclose(maps);
	return next >= end ? 0 : -EINVAL;
}

int cu_pages_are_there(const void *at, size_t bytes)
{
	return look(at, bytes, false);
}

/* The first mapping that reaches into @bytes from @at on. -ENOENT: none does. */
static int find(const void *at, size_t bytes, struct mapping *ret_mapping)
{
	uintptr_t begin = (uintptr_t)at;
	char line[512];
	int r = -ENOENT;
	FILE *maps = fopen("/proc/self/maps", "re");

	if (!maps)
		return -ENOMEM;
	while (r == -ENOENT && fgets(line, sizeof(line), maps))
		if (read_line(line, ret_mapping) && ret_mapping->end > begin)
			r = 0;
	(void)fclose(maps);
	return r == 0 && ret_mapping->begin >= begin + bytes ? -ENOENT : r;
}

/* ---- what is at an address still ---- */

static bool is_same(const struct pages *p, const struct mapping *m)
{
	return m->inode == p->file.inode && m->major == p->file.major &&
	       m->minor == p->file.minor && m->inode != 0 &&
	       m->off - p->file.off == m->begin - p->file.begin;
}

/*
 * Has @take done to each part of @p that is what was put there. The program may have unmapped some of it, and may have mapped
 * something else: that is its own.
 */
static int for_each_left(const struct pages *p,
			 int (*take)(const struct pages *p, size_t off, size_t bytes))
{
	size_t off = 0;

	while (off < p->bytes) {
		uintptr_t at = (uintptr_t)p->at + off;
		struct mapping m;
		size_t end;
		int r = find(p->at + off, p->bytes - off, &m);

		if (r < 0)
			return r == -ENOENT ? 0 : r;
		off = m.begin > at ? m.begin - (uintptr_t)p->at : off;
		end = m.end - (uintptr_t)p->at;
		end = end < p->bytes ? end : p->bytes;
		r = is_same(p, &m) ? take(p, off, end - off) : 0;
		if (r < 0)
			return r;
		off = end;
	}
	return 0;
}

static int move_to(void *from, void *at, size_t bytes)
{
	if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
		return 0;
	(void)munmap(from, bytes); /* it is whole pages of ours */
	return -ENOMEM;
}

static void *copy_of(const struct pages *p, size_t off, size_t bytes)
{
	void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (own == MAP_FAILED)
		return NULL;
	memcpy(own, p->shared + off, bytes);
	return own;
}

static int make_own(const struct pages *p, size_t off, size_t bytes)
{
	void *own = copy_of(p, off, bytes);

	return own ? move_to(own, p->at + off, bytes) : -ENOMEM;
}

/* ---- fork ---- */

/*
 * The session's memory is no child's, so these pages would be missing in it: it gets copies, made before, for the pages themselves are
 * the parent's by the time it looks. Without memory for a copy they are missing.
 */
static int prepare_part(const struct pages *p, size_t off, size_t bytes)
{
	struct part *part = calloc(1, sizeof(*part));

	if (!part)
		return 0;
	*part = (struct part){ .copy = copy_of(p, off, bytes), .at = p->at + off, .bytes = bytes };
	gantry_list_push_back(&parts, &part->link);
	return 0;
}

static void before_fork(void)
{
	(void)pthread_mutex_lock(&lock);
	gantry_list_for_each(&all, struct pages, link, p)
		(void)for_each_left(p, prepare_part);
}

static void end_parts(void (*take)(const struct part *part))
{
	gantry_list_for_each_safe(&parts, struct part, link, part) {
		gantry_list_remove(&part->link);
		if (part->copy)
			take(part);
		free(part);
	}
}

static void drop(const struct part *part)
{
	(void)munmap(part->copy, part->bytes); /* it is whole pages of ours */
}

static void put(const struct part *part)
{
	(void)move_to(part->copy, part->at, part->bytes); /* or they are missing */
}

static void in_parent(void)
{
	end_parts(drop);
	(void)pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	end_parts(put);
	gantry_list_for_each_safe(&all, struct pages, link, p) {
		gantry_list_remove(&p->link);
		free(p);
	}
	(void)pthread_mutex_unlock(&lock);
}

static bool is_watching;

static void watch(void)
{
	is_watching = pthread_atfork(before_fork, in_parent, in_child) == 0;
}

/* ---- changing places ---- */

static int change_places(struct pages *p, void *shared)
{
	void *alias;
	int r = find(shared, p->bytes, &p->file);

	if (r < 0 || p->file.inode == 0)
		return -EOPNOTSUPP;
	p->file.off += (uintptr_t)shared - p->file.begin;
	p->file.begin = (uintptr_t)p->at;
	/* A second name of shared memory: mremap(2) of no bytes. Nothing is taken apart before it is there. */
	alias = mremap(shared, 0, p->bytes, MREMAP_MAYMOVE);
	if (alias == MAP_FAILED)
		return -EOPNOTSUPP;
	memcpy(alias, p->at, p->bytes);
	return move_to(alias, p->at, p->bytes);
}

int cu_pages_share(void *at, void *shared, size_t bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pages *p;
	int r = look(at, bytes, true);

	if (r < 0)
		return r;
	(void)pthread_once(&once, watch);
	if (!is_watching)
		return -ENOMEM; /* a child would lack them */
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct pages){ .at = at, .shared = shared, .bytes = bytes };
	(void)pthread_mutex_lock(&lock);
	r = change_places(p, shared);
	if (r == 0)
		gantry_list_push_back(&all, &p->link);
	(void)pthread_mutex_unlock(&lock);
	if (r < 0)
		free(p);
	return r;
}

int cu_pages_unshare(void *at)
{
	int r = -EINVAL;

	(void)pthread_mutex_lock(&lock);
	gantry_list_for_each_safe(&all, struct pages, link, p) {
		if (p->at != at)
			continue;
		r = for_each_left(p, make_own);
		if (r == 0) {
			gantry_list_remove(&p->link);
			free(p);
		}
		break;
	}
	(void)pthread_mutex_unlock(&lock);
	return r;
}
