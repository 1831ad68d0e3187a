/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvirt and libxml2, loaded at run time: this program is installed on hosts that have neither.
 *
 * A function is called as lib->virDomainFree(domain). Which ones there are is one list here.
 * Threads: gantry_libraries_load() once, from one thread; then any, as libvirt and libxml2 say.
 */
#ifndef GANTRY_HOST_AGENT_VM_LIBRARIES_H
#define GANTRY_HOST_AGENT_VM_LIBRARIES_H

#include <libvirt/libvirt-qemu.h>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <libxml/parser.h>
#include <libxml/tree.h>

#include "base/err.h"

#define GANTRY_LIBVIRT_CALLS(F)               \
	F(virConnectOpen)                     \
	F(virConnectClose)                    \
	F(virConnectSetKeepAlive)             \
	F(virConnectListAllDomains)           \
	F(virConnectDomainEventRegisterAny)   \
	F(virConnectDomainEventDeregisterAny) \
	F(virDomainLookupByName)              \
	F(virDomainLookupByUUIDString)        \
	F(virDomainFree)                      \
	F(virDomainGetName)                   \
	F(virDomainGetUUIDString)             \
	F(virDomainGetState)                  \
	F(virDomainIsPersistent)              \
	F(virDomainGetXMLDesc)                \
	F(virDomainGetSecurityLabelList)      \
	F(virDomainAttachDeviceFlags)         \
	F(virDomainDetachDeviceFlags)         \
	F(virDomainDetachDeviceAlias)         \
	F(virDomainMigrate3)                  \
	F(virDomainResume)                    \
	F(virDomainGetJobStats)               \
	F(virDomainAbortJob)                  \
	F(virTypedParamsAddString)            \
	F(virTypedParamsAddULLong)            \
	F(virTypedParamsGetULLong)            \
	F(virTypedParamsFree)                 \
	F(virEventRegisterDefaultImpl)        \
	F(virEventRunDefaultImpl)             \
	F(virEventAddTimeout)                 \
	F(virEventRemoveTimeout)              \
	F(virGetLastError)                    \
	F(virSetErrorFunc)
#define GANTRY_LIBVIRT_QEMU_CALLS(F) F(virDomainQemuMonitorCommand)
#define GANTRY_LIBXML_CALLS(F)  \
	F(xmlReadMemory)        \
	F(xmlFreeDoc)           \
	F(xmlDocGetRootElement) \
	F(xmlBufferCreate)      \
	F(xmlBufferFree)        \
	F(xmlBufferContent)     \
	F(xmlNodeDump)

struct gantry_libraries {
#define GANTRY_LIBRARY_CALL(name) __typeof__(&name) name;
	GANTRY_LIBVIRT_CALLS(GANTRY_LIBRARY_CALL)
	GANTRY_LIBVIRT_QEMU_CALLS(GANTRY_LIBRARY_CALL)
	GANTRY_LIBXML_CALLS(GANTRY_LIBRARY_CALL)
#undef GANTRY_LIBRARY_CALL
};

/*
 * Loads all; they stay until the process ends. -ENOENT: one is not installed, or too old, with a sentence
 * that says what to install; @ret_lib is then untouched.
 */
int gantry_libraries_load(struct gantry_libraries *ret_lib, struct gantry_err *err);

#endif
