/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that share faults, as clients of one MPS server do: a fault of one is everybody's, and so is the death
 * of one that had a kernel running. A mutex per process, robust and in shared memory, tells of deaths: no call that a
 * confined process may not make is needed. "terminate_client" writes into a client's slot: its own contexts fail, and
 * its death harms nobody. After a fault nobody can join until all who were there have left.
 */
#include "tests/fakecuda/group.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"

#define CUT_US 20000

static struct {
	struct fake_group *page;
	struct fake_group_slot *slot;
	pthread_t watcher;
	pthread_mutex_t lock;
	pthread_cond_t leave;
	bool leaving;
	bool ready;
} group = { .lock = PTHREAD_MUTEX_INITIALIZER, .leave = PTHREAD_COND_INITIALIZER };

static void init_page(struct fake_group *page)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	(void)pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	for (unsigned int i = 0; i < FAKE_GROUP_SLOTS; i++)
		(void)pthread_mutex_init(&page->slots[i].alive, &attr);
	(void)pthread_mutexattr_destroy(&attr);
	page->magic = FAKE_GROUP_MAGIC;
}

static struct fake_group *map_page(const char *path)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	struct fake_group *page = NULL;

	if (fd < 0)
		return NULL;
	/* One process makes the page, the others wait for it. The lock goes with the descriptor. */
	if (fcntl(fd, F_SETLKW, &whole) == 0 && ftruncate(fd, sizeof(*page)) == 0)
		page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		page = NULL;
	if (page && page->magic != FAKE_GROUP_MAGIC)
		init_page(page);
	close(fd);
	return page;
}

static bool take_slot(struct fake_group_slot *slot)
{
	int r = pthread_mutex_trylock(&slot->alive);

	if (r == EOWNERDEAD) {
		/* Since a fault that it lived through nothing of it runs. */
		if (__sync_fetch_and_add(&slot->busy, 0) > 0 && !slot->terminated &&
		    slot->faults == __sync_fetch_and_add(&group.page->faults, 0))
			fake_group_tell(CUDA_ERROR_ILLEGAL_ADDRESS);
		(void)pthread_mutex_consistent(&slot->alive);
		slot->pid = 0;
		(void)__sync_lock_test_and_set(&slot->busy, 0);
		slot->terminated = 0;
		r = 0;
	}
	return r == 0;
}

/* Looks after the dead: whoever could take their mutex finds what they left running. */
static void look_around(void)
{
	for (unsigned int i = 0; i < FAKE_GROUP_SLOTS; i++) {
		struct fake_group_slot *slot = &group.page->slots[i];

		if (slot != group.slot && slot->pid != 0 && take_slot(slot))
			(void)pthread_mutex_unlock(&slot->alive);
	}
}

static void apply_faults(void)
{
	CUresult code = CUDA_SUCCESS;
	uint64_t faults = fake_group_faults(&code);

	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < FAKE_MAX_DEVICES; i++)
		if (fake.primary[i].nrefs > 0 && fake.primary[i].group_faults < faults)
			fake_fail_locked(&fake.primary[i], code);
	for (struct CUctx_st *ctx = fake.created; ctx; ctx = ctx->next)
		if (ctx->group_faults < faults)
			fake_fail_locked(ctx, code);
	pthread_mutex_unlock(&fake.lock);
}

static void apply_termination(void)
{
	if (!group.slot || !__sync_fetch_and_add(&group.slot->terminated, 0))
		return;
	/* What is cut off looks finished for a while, and the context failed then. */
	pthread_mutex_lock(&fake.lock);
	fake.cut = true;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	(void)usleep(CUT_US);
	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < FAKE_MAX_DEVICES; i++)
		if (fake.primary[i].nrefs > 0)
			fake_fail_locked(&fake.primary[i], CUDA_ERROR_MPS_CLIENT_TERMINATED);
	for (struct CUctx_st *ctx = fake.created; ctx; ctx = ctx->next)
		fake_fail_locked(ctx, CUDA_ERROR_MPS_CLIENT_TERMINATED);
	pthread_mutex_unlock(&fake.lock);
}

/* One who has the group's fault is still there. */
static bool in_fault(void)
{
	for (unsigned int i = 0; i < FAKE_GROUP_SLOTS; i++) {
		struct fake_group_slot *slot = &group.page->slots[i];

		if (slot->pid != 0 && slot->pid != getpid() &&
		    slot->faults < __sync_fetch_and_add(&group.page->faults, 0))
			return true;
	}
	return false;
}

static void *watch(void *unused)
{
	(void)unused;
	for (unsigned int i = 0; i < FAKE_GROUP_SLOTS && !group.slot; i++)
		if (take_slot(&group.page->slots[i]))
			group.slot = &group.page->slots[i];
	if (group.slot) {
		group.slot->faults = __sync_fetch_and_add(&group.page->faults, 0);
		group.slot->pid = getpid();
	}
	pthread_mutex_lock(&group.lock);
	group.ready = true;
	pthread_cond_broadcast(&group.leave);
	while (!group.leaving) {
		struct timespec until;

		(void)clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 5000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		(void)pthread_cond_timedwait(&group.leave, &group.lock, &until);
		pthread_mutex_unlock(&group.lock);
		look_around();
		apply_faults();
		apply_termination();
		pthread_mutex_lock(&group.lock);
	}
	pthread_mutex_unlock(&group.lock);
	if (group.slot) {
		group.slot->pid = 0;
		(void)pthread_mutex_unlock(&group.slot->alive);
	}
	return NULL;
}

int fake_group_join(const char *path)
{
	if (group.page)
		return 0;
	group.page = map_page(path);
	group.leaving = group.ready = false;
	if (!group.page)
		return -1;
	look_around();
	if (in_fault()) {
		(void)munmap(group.page, sizeof(*group.page));
		group.page = NULL;
		return -2;
	}
	if (pthread_create(&group.watcher, NULL, watch, NULL) != 0) {
		(void)munmap(group.page, sizeof(*group.page));
		group.page = NULL;
		return -1;
	}
	pthread_mutex_lock(&group.lock);
	while (!group.ready)
		pthread_cond_wait(&group.leave, &group.lock);
	pthread_mutex_unlock(&group.lock);
	return group.slot ? 0 : -1;
}

void fake_group_leave(void)
{
	if (!group.page)
		return;
	pthread_mutex_lock(&group.lock);
	group.leaving = true;
	pthread_cond_broadcast(&group.leave);
	pthread_mutex_unlock(&group.lock);
	(void)pthread_join(group.watcher, NULL);
	(void)munmap(group.page, sizeof(*group.page));
	group.page = NULL;
	group.slot = NULL;
}

bool fake_in_group(void)
{
	return group.page != NULL;
}

uint64_t fake_group_faults(CUresult *ret_code)
{
	if (!group.page)
		return 0;
	*ret_code = (CUresult)__sync_fetch_and_add(&group.page->code, 0);
	return __sync_fetch_and_add(&group.page->faults, 0);
}

void fake_group_tell(CUresult code)
{
	if (!group.page)
		return;
	(void)__sync_lock_test_and_set(&group.page->code, (uint64_t)code);
	(void)__sync_add_and_fetch(&group.page->faults, 1);
}

void fake_group_busy(int delta)
{
	if (group.slot)
		(void)__sync_add_and_fetch(&group.slot->busy, (uint64_t)(int64_t)delta);
}
