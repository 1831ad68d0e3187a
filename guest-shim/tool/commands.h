/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of gantry-guest. Each returns the exit status; @root is where PCI devices are. */
#ifndef GANTRY_GUEST_SHIM_TOOL_COMMANDS_H
#define GANTRY_GUEST_SHIM_TOOL_COMMANDS_H

#define DEVICES_MAX 16

/* Prints the doors of this machine and the processes at them. 1: there is no door. */
int command_status(const char *root);

/* Prints what stands in the way of programs, and what to do about it. 1: something does. @door: NULL, or one to try. */
int command_doctor(const char *root, const char *door);

/* Clears what dead processes have left at desks: once, or every @interval_ms until killed. */
int command_reap(const char *root);
int command_watch(const char *root, int interval_ms);

/* For udev: enables the device at @folder and lets group gantry use it. */
int command_permit(const char *folder);

#endif
