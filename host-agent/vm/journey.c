/* SPDX-License-Identifier: Apache-2.0 */
#include "journey.h"

#include <errno.h>

#include "base/clock.h"

#define CODE_FAILED 1 /* gantryctl's */

const char *gantry_vm_step_name(enum gantry_vm_step step)
{
	static const char *const names[] = {
		[GANTRY_VM_CHECK] = "check",	   [GANTRY_VM_LEAVE] = "leave",
		[GANTRY_VM_SESSIONS] = "sessions", [GANTRY_VM_TAKE_OUT] = "detach",
		[GANTRY_VM_MOVE] = "move",	   [GANTRY_VM_PUT_IN] = "attach",
		[GANTRY_VM_RETURN] = "return",
	};

	return names[step];
}

static int run_step(const struct gantry_vm_journey_ops *ops, void *arg, enum gantry_vm_step step,
		    struct gantry_vm_journey *j)
{
	int r;

	if (step <= GANTRY_VM_MOVE && ops->interrupted(arg)) {
		(void)gantry_err_set(&j->why, -ECANCELED, "interrupted");
		return CODE_FAILED;
	}
	if (ops->tell)
		ops->tell(arg, step, false);
	j->began_ns[step] = gantry_now_ns();
	r = ops->run[step](arg, &j->why);
	j->took_ns[step] = gantry_now_ns() - j->began_ns[step];
	return r;
}

/*
 * From @step backwards. What is at the source again does not wait for what cannot be brought back; but where the machine
 * itself stays away, so does what belongs to it.
 */
static void undo_from(const struct gantry_vm_journey_ops *ops, void *arg, enum gantry_vm_step from,
		      struct gantry_vm_journey *j)
{
	j->outcome = j->began_ns[GANTRY_VM_LEAVE] ? GANTRY_VM_BACK : GANTRY_VM_STAYED;
	for (int step = (int)from; step >= 0; step--) {
		struct gantry_err err = GANTRY_ERR_NONE;

		/* One that was only interrupted has not begun. */
		if (!ops->undo[step] || !j->began_ns[step])
			continue;
		if (ops->tell)
			ops->tell(arg, (enum gantry_vm_step)step, true);
		if (ops->undo[step](arg, &err) == 0)
			continue;
		if (j->outcome != GANTRY_VM_HALF) {
			j->outcome = GANTRY_VM_HALF;
			j->stuck = (enum gantry_vm_step)step;
			j->stuck_why = err;
		}
		if (step == GANTRY_VM_MOVE)
			return;
	}
}

static void lose(struct gantry_vm_journey *j)
{
	j->code = CODE_FAILED;
	j->outcome = GANTRY_VM_HALF;
	j->stuck = GANTRY_VM_MOVE;
	j->stuck_why = j->why;
}

void gantry_vm_journey_run(const struct gantry_vm_journey_ops *ops, void *arg, bool only_check,
			   struct gantry_vm_journey *ret_journey)
{
	struct gantry_vm_journey j = { .why = GANTRY_ERR_NONE, .stuck_why = GANTRY_ERR_NONE };

	j.outcome = only_check ? GANTRY_VM_STAYED : GANTRY_VM_DONE;
	for (int step = 0; step < (only_check ? GANTRY_VM_CHECK + 1 : GANTRY_VM_NSTEPS); step++) {
		j.code = run_step(ops, arg, (enum gantry_vm_step)step, &j);
		if (j.code == 0)
			continue;
		j.failed = (enum gantry_vm_step)step;
		if (j.code == GANTRY_VM_LOST)
			lose(&j);
		else
			undo_from(ops, arg, j.failed, &j);
		break;
	}
	*ret_journey = j;
}
