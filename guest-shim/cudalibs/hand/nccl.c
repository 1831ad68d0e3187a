/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator over several devices of one process, made of what one over several processes is made of. */
#include <nccl.h>

#include "guest-shim/cudalibs/call.h"
#include "guest-shim/cudalibs/several.h"

/* The header declares them without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t gantry_hand_ncclCommInitAll(struct gantry_call_library *library, ncclComm_t *comms,
					 int ndev, const int *devlist);
ncclResult_t gantry_hand_pncclCommInitAll(struct gantry_call_library *library, ncclComm_t *comms,
					  int ndev, const int *devlist);

ncclResult_t gantry_hand_ncclCommCuDevice(struct gantry_call_library *library,
					  const ncclComm_t comm, int *device);
ncclResult_t gantry_hand_pncclCommCuDevice(struct gantry_call_library *library,
					   const ncclComm_t comm, int *device);

static int is_list(int ndev, const int *devlist)
{
	for (int i = 0; devlist && i < ndev; i++) {
		if (devlist[i] < 0)
			return 0;
		for (int k = 0; k < i; k++)
			if (devlist[i] == devlist[k])
				return 0;
	}
	return 1;
}

/* Asked before a group begins: one that ended without a rank would wait for that rank for ever. */
static int are_there(int ndev, const int *devlist)
{
	for (int i = 0; i < ndev; i++) {
		int device = devlist ? devlist[i] : i;

		if (gantry_call_enter_device(device) < 0)
			return 0;
		gantry_call_leave_device(device);
	}
	return 1;
}

static ncclResult_t init_rank(struct gantry_call_library *library, ncclComm_t *comm, int ndev,
			      ncclUniqueId id, int rank, int device)
{
	ncclResult_t r;

	if (gantry_call_enter_device(device) < 0)
		return (ncclResult_t)library->refused;
	r = ncclCommInitRank(comm, ndev, id, rank);
	gantry_call_leave_device(device);
	return r;
}

ncclResult_t gantry_hand_ncclCommInitAll(struct gantry_call_library *library, ncclComm_t *comms,
					 int ndev, const int *devlist)
{
	ncclResult_t r, ended;
	ncclUniqueId id;

	if (!comms || ndev < 1 || !is_list(ndev, devlist) || !are_there(ndev, devlist))
		return (ncclResult_t)library->refused;
	r = ncclGetUniqueId(&id);
	if (r != ncclSuccess)
		return r;
	r = ncclGroupStart();
	if (r != ncclSuccess)
		return r;
	for (int i = 0; i < ndev && r == ncclSuccess; i++)
		r = init_rank(library, &comms[i], ndev, id, i, devlist ? devlist[i] : i);
	ended = ncclGroupEnd();
	return r != ncclSuccess ? r : ended;
}

ncclResult_t gantry_hand_pncclCommInitAll(struct gantry_call_library *library, ncclComm_t *comms,
					  int ndev, const int *devlist)
{
	return gantry_hand_ncclCommInitAll(library, comms, ndev, devlist);
}

ncclResult_t gantry_hand_ncclCommCuDevice(struct gantry_call_library *library,
					  const ncclComm_t comm, int *device)
{
	ncclResult_t r;
	int rank;

	if (!device)
		return (ncclResult_t)library->refused;
	/* Whether it is a communicator at all. */
	r = ncclCommUserRank(comm, &rank);
	if (r == ncclSuccess)
		(void)gantry_several_number((uint64_t)(uintptr_t)comm, device);
	return r;
}

ncclResult_t gantry_hand_pncclCommCuDevice(struct gantry_call_library *library,
					   const ncclComm_t comm, int *device)
{
	return gantry_hand_ncclCommCuDevice(library, comm, device);
}
